package postgres

import (
	"context"
	"fmt"
	"slices"

	"tasker.example/tasker"
)

// limitedLook are the steps that need not wait, and the keys that were looked at for them.
type limitedLook struct {
	Last         int64
	Keys         int
	Tasks, Steps []tasker.ID
}

// UnparkLimited puts steps that need not wait for their limit any more back into the queue, up to so
// many, of keys after one. A task of which that fails holds up no other; what is returned with the error is done all the same.
func (db *DB) UnparkLimited(ctx context.Context, limit int, after int64) (b UnparkResult, err error) {
	found, err := one[limitedLook](ctx, db.pool, limitedSteps, limit, db.queue.announce, after, db.queue.ttlMS)
	if err != nil {
		return b, fmt.Errorf("find steps that need not wait for a limit: %w", err)
	}
	b.Waiting = found.Keys > 0
	if found.Keys == keysOfPass {
		b.Last = found.Last
	}
	if len(found.Steps) == 0 {
		return b, nil
	}
	b.Namespaces, err = db.backFromLimits(ctx, found.Tasks, found.Steps)
	if err != nil && ctx.Err() == nil && !IsUnavailable(err) {
		b.Namespaces, err = db.backSingly(ctx, *found)
	}
	b.More = len(found.Steps) == limit && len(b.Namespaces) > 0
	return b, wrap(err, "put steps back that waited for a limit")
}

// backSingly puts each step back by itself, where that failed for all together.
func (db *DB) backSingly(ctx context.Context, found limitedLook) (namespaces []string, err error) {
	failed := 0
	for i, task := range found.Tasks {
		back, fault := db.backFromLimits(ctx, []tasker.ID{task}, found.Steps[i:i+1])
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

// backFromLimits puts steps back whose tasks nobody else works on, and returns their namespaces.
func (db *DB) backFromLimits(ctx context.Context, of, which []tasker.ID) (namespaces []string, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		namespaces = nil
		free, err := tx.LockFreeTasks(ctx, tasksOnce(of))
		if err != nil || len(free) == 0 {
			return err
		}
		locked := make(map[tasker.ID]bool, len(free))
		for _, id := range free {
			locked[id] = true
		}
		var tasks, steps []tasker.ID
		for i, id := range of {
			if locked[id] {
				tasks, steps = append(tasks, id), append(steps, which[i])
			}
		}
		namespaces, err = column[string](ctx, tx, backFromLimits, tasks, steps, db.queue.ttlMS, db.queue.announce)
		if err != nil {
			return err
		}
		_, err = tx.SettleTasks(ctx, tasksOnce(tasks), Operator{}) // their time runs from here on
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
