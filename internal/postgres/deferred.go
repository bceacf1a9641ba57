package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
)

// Deferred is work on a row that failed and will be retried. The step is zero for work on a task.
type Deferred struct {
	tasker.StepRef
	Kind     string
	Failures int // in a row
	Since    time.Time
	RetryAt  time.Time
}

// The kinds of work on single rows that may be deferred.
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
	ReleaseHeld    = "release_hold" // of tasks
)

// RetryDeferred is the kind of work that retries [Deferred] work.
const RetryDeferred = "deferred"

// Failed is a row whose work failed.
type Failed struct {
	tasker.StepRef
	Err error
}

// Bounds of the backoff, which doubles with each failure in a row.
const (
	DeferFirst = 2 * time.Second
	DeferMost  = 5 * time.Minute
)

// maxDeferredError is the maximum length of a stored error, like in the table.
const maxDeferredError = 1000

const deferWork = `
INSERT INTO tasker.deferred_work AS d (kind, task_uuid, step_uuid, failures, last_error, retry_at)
SELECT $1, u.task_uuid, u.step_uuid, 1, u.error, clock_timestamp() + $5::interval
FROM unnest($2::uuid[], $3::uuid[], $4::text[]) AS u (task_uuid, step_uuid, error)
ORDER BY u.task_uuid, u.step_uuid
ON CONFLICT (kind, task_uuid, step_uuid) DO UPDATE
SET failures = d.failures + 1, last_error = excluded.last_error, last_failed_at = clock_timestamp(),
    retry_at = clock_timestamp() + least($6::interval, $5::interval * 2 ^ least(d.failures, 20))
RETURNING kind, task_uuid, step_uuid, failures, first_failed_at AS since, retry_at`

// DeferWork defers failed rows for a time that doubles with each failure in a row.
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
	return list, wrap(err, "defer failed work")
}

// Reserves the rows for one server, those with the fewest failures first.
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
RETURNING d.kind, d.task_uuid, d.step_uuid, d.failures, d.first_failed_at AS since, d.retry_at`

// TakeDeferredWork returns due work of the kinds and reserves it for the duration of hold.
func (db *DB) TakeDeferredWork(ctx context.Context, kinds []string, limit int, hold time.Duration) ([]Deferred, error) {
	list, err := collect[Deferred](ctx, db.pool, takeDeferredWork, kinds, limit, hold)
	return list, wrap(err, "read deferred work")
}

// InvestigateDeferred opens an investigation of the open task whose work fails, once since the first
// failure. It does nothing before [tasker.MaxSilentFailures] failures or if one is open.
func (db *DB) InvestigateDeferred(ctx context.Context, d Deferred, failure error) error {
	if d.Failures < tasker.MaxSilentFailures {
		return nil
	}
	reason := payload.CleanText(failure.Error(), maxDeferredError)
	work := map[string]any{"kind": d.Kind, "failures": d.Failures, "first_failed_at": d.Since, "last_error": reason}
	if d.StepUUID != (tasker.ID{}) {
		work["step_uuid"] = d.StepUUID
	}
	metadata, err := json.Marshal(map[string]any{tasker.DeferredWork: work})
	if err != nil {
		return fmt.Errorf("describe deferred work: %w", err)
	}
	return db.InTx(ctx, func(tx *Tx) error {
		free, err := tx.LockFreeTasks(ctx, []tasker.ID{d.TaskUUID})
		if err != nil || len(free) == 0 {
			return err // the next failure retries
		}
		state, err := column[tasker.TaskState](ctx, tx, stateWithoutEntry, d.TaskUUID, tasker.DeferredWork, d.Since)
		if err != nil || len(state) == 0 || slices.Contains(finalStates, state[0]) {
			return err
		}
		_, err = tx.OpenEntry(ctx, NewEntry{
			TaskUUID: d.TaskUUID, Reason: tasker.StalenessTimeout, DetailCode: tasker.DeferredWork, DetectedBy: tasker.DetectedInline,
			OriginalState: state[0], Actor: tasker.SystemActor, Metadata: metadata,
			Notes: fmt.Sprintf("work of the server (%s) failed %d times since %s: %s", d.Kind, d.Failures, d.Since.UTC().Format(time.RFC3339), reason),
		})
		return err
	})
}

// stateWithoutEntry selects the state of task $1 without an investigation of code $2 since $3.
const stateWithoutEntry = `
SELECT t.state FROM tasker.tasks t
WHERE t.task_uuid = $1 AND NOT EXISTS (
    SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = $1 AND $2 IN (d.detail_code, d.original_detail_code) AND d.dlq_timestamp >= $3
)`

// Also marks the investigation of the work, whose task must be locked, as recovered.
const endDeferral = `
WITH ended AS (
    DELETE FROM tasker.deferred_work WHERE kind = $1 AND task_uuid = $2 AND step_uuid = $3
),
recovered AS (
    UPDATE tasker.tasks_dlq d
    SET recovered_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE d.task_uuid = $2 AND d.resolution_status = 'pending' AND d.recovered_at IS NULL AND d.detail_code = $4 AND d.metadata #>> ARRAY[$4, 'kind'] = $1
    RETURNING d.dlq_entry_uuid, d.updated_at
)
INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, changed_at)
SELECT dlq_entry_uuid, 'recovered', $5, 'pending', 'pending', updated_at FROM recovered`

// EndDeferral deletes the record of deferred work that is done or no longer required.
func (db *DB) EndDeferral(ctx context.Context, d Deferred) error {
	err := db.InTx(ctx, func(tx *Tx) error {
		if d.Failures >= tasker.MaxSilentFailures {
			if err := tx.LockTasks(ctx, []tasker.ID{d.TaskUUID}); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, endDeferral, d.Kind, d.TaskUUID, d.StepUUID, tasker.DeferredWork, tasker.SystemActor)
		return err
	})
	return wrap(err, "end a deferral")
}

// DeferredCount counts the deferred rows of a kind.
type DeferredCount struct {
	Kind   string
	Rows   int64
	Oldest time.Time // first failure
	Error  string    // of one row, redacted
}

// DeferredCounts counts deferred work by kind, up to limit rows.
func (db *DB) DeferredCounts(ctx context.Context, limit int) ([]DeferredCount, error) {
	list, err := collect[DeferredCount](ctx, db.pool, `
		SELECT d.kind, count(*) AS rows, min(d.first_failed_at) AS oldest, tasker.redact_note(min(d.error)) AS error
		FROM (SELECT kind, first_failed_at, left(last_error, 300) AS error FROM tasker.deferred_work ORDER BY kind LIMIT $1) d
		GROUP BY d.kind
		ORDER BY d.kind`, limit)
	return list, wrap(err, "count deferred work")
}
