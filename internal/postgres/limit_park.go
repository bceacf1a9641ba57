package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// A blockedStep is an enqueued step with a key that is full or that a more urgent step reserves.
type blockedStep struct {
	tasker.StepRef
	QueueName
	Priority   int
	StateSince time.Time
	LimitKeyID int64
}

var blockedColumns = columns[blockedStep]{
	newColumn("task_uuid uuid", func(s *blockedStep) tasker.ID { return s.TaskUUID }),
	newColumn("step_uuid uuid", func(s *blockedStep) tasker.ID { return s.StepUUID }),
	newColumn("namespace text", func(s *blockedStep) string { return s.Namespace }),
	newColumn("handler text", func(s *blockedStep) string { return s.Handler }),
	newColumn("priority int", func(s *blockedStep) int { return s.Priority }),
	newColumn("state_since timestamptz", func(s *blockedStep) time.Time { return s.StateSince }),
	newColumn("limit_key_id bigint", func(s *blockedStep) int64 { return s.LimitKeyID }),
}

// queueParking adds the statements that park refused steps to a batch and returns their number.
// Parked steps that another key blocks are moved to that key.
func (r *limitedRound) queueParking(batch *pgx.Batch) (statements int) {
	if r.steps != nil || len(r.verdict.admitted) >= r.size.limit {
		return 0
	}
	var ready, parked []blockedStep
	for _, s := range r.verdict.refused {
		isShared := r.isShared(s.key)
		if s.Parked == s.key || isShared && !r.parksShared() {
			continue
		}
		step := blockedStep{s.StepRef, s.QueueName, s.Priority, s.StateSince, s.key}
		if s.Parked == 0 {
			ready = append(ready, step)
		} else {
			parked = append(parked, step)
		}
		r.parked = r.parked || !isShared
	}
	before := batch.Len()
	if len(ready) > 0 {
		batch.Queue(statement("parkSteps"), blockedColumns.toArrays(ready)...)
	}
	if len(parked) > 0 {
		batch.Queue(statement("moveParkedSteps"), blockedColumns.pick("task_uuid", "step_uuid", "limit_key_id").toArrays(parked)...)
	}
	return batch.Len() - before
}

// ParkLimited parks those of the enqueued steps that wait for a limit, and returns the others.
func (db *DB) ParkLimited(ctx context.Context, steps []tasker.StepRef) ([]tasker.StepRef, error) {
	if len(steps) == 0 {
		return nil, nil
	}
	tasks, ids := toRefArrays(steps)
	list, err := collect[blockedStep](ctx, db.pool, statement("stepsOfFullKeys"), tasks, ids)
	if err != nil || len(list) == 0 {
		return steps, wrapError(err, "find steps that wait for limits")
	}
	if err := exec(ctx, db.pool, "park steps that wait for limits", statement("parkSteps"), blockedColumns.toArrays(list)...); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(steps, func(s tasker.StepRef) bool {
		return slices.ContainsFunc(list, func(b blockedStep) bool { return b.StepUUID == s.StepUUID })
	}), nil
}

// An UnparkResult describes a batch of [DB.UnparkLimited].
type UnparkResult struct {
	Namespaces []string // namespaces of the unparked steps
	Waiting    bool     // steps are parked because of limits
	More       bool     // the batch was full, so there may be more steps
	Last       int64    // key after which the next scan begins; 0 at the end
}

type unparkScan struct {
	Last         int64 // last key that was read
	Keys         int
	Tasks, Steps []tasker.ID
}

// UnparkLimited returns up to limit parked steps to the queue that need not wait for a limit any
// more. It scans the keys after the given one. A failing task does not delay the others, so the
// result is valid even if there is an error.
func (db *DB) UnparkLimited(ctx context.Context, limit int, after int64) (b UnparkResult, err error) {
	found, err := queryOne[unparkScan](ctx, db.pool, statement("limitedSteps"), limit, db.queue.announce, after,
		db.queue.ttlMS)
	if err != nil {
		return b, fmt.Errorf("find steps to unpark: %w", err)
	}
	b.Waiting = found.Keys > 0
	if found.Keys == maxUnparkKeys {
		b.Last = found.Last
	}
	if len(found.Steps) == 0 {
		return b, nil
	}
	b.Namespaces, err = db.unparkSteps(ctx, found.Tasks, found.Steps)
	if err != nil && ctx.Err() == nil && !IsUnavailable(err) {
		b.Namespaces, err = db.unparkSingly(ctx, *found)
	}
	b.More = len(found.Steps) == limit && len(b.Namespaces) > 0
	return b, wrapError(err, "unpark steps")
}

// unparkSingly unparks each step in its own transaction, after doing so together has failed.
func (db *DB) unparkSingly(ctx context.Context, found unparkScan) (namespaces []string, err error) {
	failed := 0
	for i, task := range found.Tasks {
		back, fault := db.unparkSteps(ctx, []tasker.ID{task}, found.Steps[i:i+1])
		namespaces = append(namespaces, back...)
		if fault == nil {
			continue
		}
		if failed++; err == nil {
			err = fmt.Errorf("step %s of task %s: %w", found.Steps[i], task, fault)
		}
		if ctx.Err() != nil || IsUnavailable(fault) {
			break
		}
	}
	slices.Sort(namespaces)
	if failed > 1 {
		err = fmt.Errorf("%d steps, the first: %w", failed, err)
	}
	return slices.Compact(namespaces), err
}

// unparkSteps unparks steps of unlocked tasks and returns their namespaces.
func (db *DB) unparkSteps(ctx context.Context, taskOf, stepIDs []tasker.ID) (namespaces []string, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		namespaces = nil
		free, err := tx.LockFreeTasks(ctx, uniqueTasks(taskOf))
		if err != nil || len(free) == 0 {
			return err
		}
		locked := make(map[tasker.ID]bool, len(free))
		for _, id := range free {
			locked[id] = true
		}
		var tasks, steps []tasker.ID
		for i, id := range taskOf {
			if locked[id] {
				tasks, steps = append(tasks, id), append(steps, stepIDs[i])
			}
		}
		namespaces, err = collectColumn[string](ctx, tx, statement("unparkSteps"), tasks, steps, db.queue.ttlMS,
			db.queue.announce)
		if err != nil {
			return err
		}
		_, err = tx.SettleTasks(ctx, uniqueTasks(tasks), Operator{}) // restarts the staleness time
		return err
	})
	if err != nil {
		return nil, err
	}
	return namespaces, nil
}

func uniqueTasks(list []tasker.ID) (out []tasker.ID) {
	seen := make(map[tasker.ID]bool, len(list))
	for _, id := range list {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}
