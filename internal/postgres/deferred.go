package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
)

// Deferred is work on one row that failed and was set aside, so that it delays no
// other. The step is zero for work that concerns a whole task.
type Deferred struct {
	tasker.StepRef
	Kind     string
	Failures int // in a row
	RetryAt  time.Time
}

// The kinds of work on single rows that may be set aside.
const (
	StartTask      = "start"
	RetrySteps     = "retry"
	ReclaimLease   = "reclaim"
	FollowUpReport = "report"
	RejectInputs   = "reject_inputs"
	ExpireStep     = "queue_limit"
	ExpireUnserved = "no_worker"
	RedispatchTask = "redispatch"
	ExpireTask     = "start_by"     // of tasks
	LetHeldGo      = "release_hold" // of tasks
)

// RetryDeferred is the kind of what is due of [Deferred] work itself.
const RetryDeferred = "deferred"

// A Failed is a row whose work failed, and why.
type Failed struct {
	tasker.StepRef
	Err error
}

// How long a row is set aside: the delay doubles with each failure in a row.
const (
	DeferFirst = 2 * time.Second
	DeferMost  = 5 * time.Minute
)

// maxDeferredError is how much of an error is kept; the table has the same limit.
const maxDeferredError = 1000

const deferWork = `
INSERT INTO tasker.deferred_work AS d (kind, task_uuid, step_uuid, failures, last_error, retry_at)
SELECT $1, u.task_uuid, u.step_uuid, 1, u.error, clock_timestamp() + $5::interval
FROM unnest($2::uuid[], $3::uuid[], $4::text[]) AS u (task_uuid, step_uuid, error)
ORDER BY u.task_uuid, u.step_uuid
ON CONFLICT (kind, task_uuid, step_uuid) DO UPDATE
SET failures = d.failures + 1, last_error = excluded.last_error, last_failed_at = clock_timestamp(),
    retry_at = clock_timestamp() + least($6::interval, $5::interval * 2 ^ least(d.failures, 20))
RETURNING kind, task_uuid, step_uuid, failures, retry_at`

// DeferWork sets rows aside whose work failed, each until a while from now that
// doubles with every failure in a row.
func (db *DB) DeferWork(ctx context.Context, kind string, rows []Failed) ([]Deferred, error) {
	tasks, steps, errs := make([]tasker.ID, len(rows)), make([]tasker.ID, len(rows)), make([]string, len(rows))
	for i, r := range rows {
		tasks[i], steps[i], errs[i] = r.TaskUUID, r.StepUUID, payload.CleanText(r.Err.Error(), maxDeferredError)
	}
	var list []Deferred
	err := retry(ctx, func() (err error) {
		list, err = collect[Deferred](ctx, db.pool, deferWork, kind, tasks, steps, errs, DeferFirst, DeferMost)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("set aside work that failed: %w", err)
	}
	return list, nil
}

// Servers share the rows: who takes one keeps the others from it for a while. Those
// that failed least come first, so that a row that fails for ever delays no row that
// was only in bad company.
const takeDeferredWork = `
UPDATE tasker.deferred_work d
SET retry_at = now() + $3::interval
FROM (
    SELECT f.kind, f.task_uuid, f.step_uuid
    FROM tasker.deferred_work f
    WHERE f.retry_at <= now() AND f.kind = ANY ($1)
    ORDER BY f.failures, f.retry_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
) due
WHERE d.kind = due.kind AND d.task_uuid = due.task_uuid AND d.step_uuid = due.step_uuid
RETURNING d.kind, d.task_uuid, d.step_uuid, d.failures, d.retry_at`

// TakeDeferredWork returns work of these kinds that was set aside and is due again.
// No other server gets it within hold.
func (db *DB) TakeDeferredWork(ctx context.Context, kinds []string, limit int, hold time.Duration) ([]Deferred, error) {
	list, err := collect[Deferred](ctx, db.pool, takeDeferredWork, kinds, limit, hold)
	if err != nil {
		return nil, fmt.Errorf("look for work that was set aside: %w", err)
	}
	return list, nil
}

// EndDeferral forgets that work on a row failed: it is done, or not needed any more.
func (db *DB) EndDeferral(ctx context.Context, d Deferred) error {
	_, err := db.pool.Exec(ctx, `DELETE FROM tasker.deferred_work WHERE kind = $1 AND task_uuid = $2 AND step_uuid = $3`, d.Kind, d.TaskUUID, d.StepUUID)
	if err != nil {
		return fmt.Errorf("end a deferral: %w", err)
	}
	return nil
}

// DeferredCount is how many rows of a kind are set aside, and since when the first.
type DeferredCount struct {
	Kind   string
	Rows   int64
	Oldest time.Time
	Error  string // of one of them, without secrets
}

// DeferredCounts counts what is set aside, by kind, up to limit rows.
func (db *DB) DeferredCounts(ctx context.Context, limit int) ([]DeferredCount, error) {
	list, err := collect[DeferredCount](ctx, db.pool, `
		SELECT d.kind, count(*) AS rows, min(d.first_failed_at) AS oldest, tasker.redact_note(min(d.error)) AS error
		FROM (SELECT kind, first_failed_at, left(last_error, 300) AS error FROM tasker.deferred_work ORDER BY kind LIMIT $1) d
		GROUP BY d.kind
		ORDER BY d.kind`, limit)
	if err != nil {
		return nil, fmt.Errorf("count work that was set aside: %w", err)
	}
	return list, nil
}
