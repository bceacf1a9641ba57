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

// Deferred describes work on a row that failed and will be retried. For work on a task, the step is
// zero.
type Deferred struct {
	tasker.StepRef
	Kind     string
	Failures int // consecutive failures
	Since    time.Time
	RetryAt  time.Time
}

// Kinds of work on single rows. A row whose work fails is deferred.
const (
	StartTask      = "start"
	RetrySteps     = "retry"
	ReclaimLease   = "reclaim"
	FollowUpReport = "report"
	RejectInputs   = "reject_inputs"
	ExpireStep     = "queue_limit"
	ExpireUnserved = "no_worker"
	RedispatchTask = "redispatch"
	ExpireTask     = "start_by"     // concerns tasks
	ReleaseHeld    = "release_hold" // concerns tasks
)

// RetryDeferred is the kind of work that retries [Deferred] work.
const RetryDeferred = "deferred"

// Failed is a row whose work failed.
type Failed struct {
	tasker.StepRef
	Err error
}

// Limits of the backoff, which doubles with each consecutive failure.
const (
	DeferFirst = 2 * time.Second
	DeferMost  = 5 * time.Minute
)

// maxDeferredError is the maximum length of a stored error. The table has the same limit.
const maxDeferredError = 1000

// DeferWork defers rows whose work failed. The delay doubles with each consecutive failure.
func (db *DB) DeferWork(ctx context.Context, kind string, rows []Failed) ([]Deferred, error) {
	tasks, steps, errs := make([]tasker.ID, len(rows)), make([]tasker.ID, len(rows)), make([]string, len(rows))
	for i, r := range rows {
		tasks[i], steps[i], errs[i] = r.TaskUUID, r.StepUUID, payload.CleanText(r.Err.Error(), maxDeferredError)
	}
	var list []Deferred
	err := retry(ctx, func() (err error) {
		list, err = collect[Deferred](ctx, db.pool, statement("deferWork"), kind, tasks, steps, errs, DeferFirst, DeferMost)
		return err
	})
	return list, wrapError(err, "defer failed work")
}

// TakeDeferredWork returns deferred work of the given kinds that is due, and reserves it for the
// duration hold.
func (db *DB) TakeDeferredWork(ctx context.Context, kinds []string, limit int, hold time.Duration) ([]Deferred, error) {
	list, err := collect[Deferred](ctx, db.pool, statement("takeDeferredWork"), kinds, limit, hold)
	return list, wrapError(err, "read deferred work")
}

// InvestigateDeferred opens an investigation for an open task whose deferred work has failed at
// least [tasker.MaxSilentFailures] times. It opens at most one per series of failures.
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
			return err // the next failure tries again
		}
		state, err := collectColumn[tasker.TaskState](ctx, tx, statement("stateWithoutEntry"), d.TaskUUID,
			tasker.DeferredWork, d.Since)
		if err != nil || len(state) == 0 || slices.Contains(finalStates, state[0]) {
			return err
		}
		_, err = tx.OpenEntry(ctx, NewEntry{
			TaskUUID: d.TaskUUID, Reason: tasker.StalenessTimeout, DetailCode: tasker.DeferredWork, DetectedBy: tasker.DetectedInline,
			OriginalState: state[0], Actor: tasker.SystemActor, Metadata: metadata,
			Notes: fmt.Sprintf("server work (%s) failed %d times "+
				"since %s: %s", d.Kind, d.Failures, d.Since.UTC().Format(time.RFC3339), reason),
		})
		return err
	})
}

// EndDeferral deletes the record of deferred work that is done or no longer needed.
func (db *DB) EndDeferral(ctx context.Context, d Deferred) error {
	err := db.InTx(ctx, func(tx *Tx) error {
		if d.Failures >= tasker.MaxSilentFailures {
			if err := tx.LockTasks(ctx, []tasker.ID{d.TaskUUID}); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, statement("endDeferral"), d.Kind, d.TaskUUID, d.StepUUID, tasker.DeferredWork,
			tasker.SystemActor)
		return err
	})
	return wrapError(err, "end a deferral")
}

// DeferredCount contains the number of deferred rows of one kind.
type DeferredCount struct {
	Kind   string
	Rows   int64
	Oldest time.Time // first failure of the oldest row
	Error  string    // error of one of the rows, redacted
}

// DeferredCounts counts deferred work by kind. It counts at most limit rows.
func (db *DB) DeferredCounts(ctx context.Context, limit int) ([]DeferredCount, error) {
	list, err := collect[DeferredCount](ctx, db.pool, statement("deferredCounts"), limit)
	return list, wrapError(err, "count deferred work")
}
