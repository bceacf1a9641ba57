package postgres

import (
	"context"

	"tasker.example/tasker"
)

// RemoveOutdated deletes outdated rows at the heads of a claimant's queues, and those of steps that
// wait for a limit. It returns the number of deleted rows.
func (db *DB) RemoveOutdated(ctx context.Context, c Claimant, steps []tasker.StepRef) (n int64, err error) {
	tasks, ids := toRefArrays(steps)
	n, err = queryValue[int64](ctx, db.pool, statement("removeOutdated"), c.Namespaces, c.Handlers, tasks, ids)
	return n, wrapError(err, "remove outdated rows of ready_steps")
}

// LockEnqueued locks those of the steps that are enqueued, so that they cannot be claimed. To move an
// enqueued step, lock its row in tasker.ready_steps first and then the row of the step, as claims do.
func (tx *Tx) LockEnqueued(ctx context.Context, steps []tasker.StepRef) error {
	tasks, ids := toRefArrays(steps)
	return exec(ctx, tx, "lock enqueued steps", statement("lockEnqueued"), tasks, ids)
}

// lockEnqueuedOf is [Tx.LockEnqueued] for all steps of the tasks.
func (tx *Tx) lockEnqueuedOf(ctx context.Context, tasks []tasker.ID) error {
	return exec(ctx, tx, "lock enqueued steps", statement("lockEnqueuedOf"), tasks)
}
