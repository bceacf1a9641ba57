package postgres

import (
	"context"
	"fmt"
	"slices"

	"tasker.example/tasker"
)

// An UnparkResult is the result of [DB.UnparkLimited].
type UnparkResult struct {
	Namespaces []string // of the steps returned to the queue
	Waiting    bool     // steps are parked for limits
	More       bool     // it reached its limit, and more steps may follow
	Last       int64    // the key after which the next scan starts; 0 at the end
}

type unparkScan struct {
	Last         int64 // key
	Keys         int
	Tasks, Steps []tasker.ID
}

// UnparkLimited returns up to limit steps to the queue that no longer wait for a limit, of the keys
// after the given one. A failing task delays no other: the result is valid even with an error.
func (db *DB) UnparkLimited(ctx context.Context, limit int, after int64) (b UnparkResult, err error) {
	found, err := one[unparkScan](ctx, db.pool, limitedSteps, limit, db.queue.announce, after, db.queue.ttlMS)
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
	return b, wrap(err, "unpark steps")
}

// unparkSingly unparks each step in its own transaction after a common one failed.
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

// unparkSteps unparks the steps of unlocked tasks, and returns their namespaces.
func (db *DB) unparkSteps(ctx context.Context, taskOf, stepIDs []tasker.ID) (namespaces []string, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		namespaces = nil
		free, err := tx.LockFreeTasks(ctx, tasksOnce(taskOf))
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
		namespaces, err = column[string](ctx, tx, unparkSteps, tasks, steps, db.queue.ttlMS, db.queue.announce)
		if err != nil {
			return err
		}
		_, err = tx.SettleTasks(ctx, tasksOnce(tasks), Operator{}) // restarts their staleness
		return err
	})
	if err != nil {
		return nil, err
	}
	return namespaces, nil
}

func tasksOnce(list []tasker.ID) (out []tasker.ID) {
	seen := make(map[tasker.ID]bool, len(list))
	for _, id := range list {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}
