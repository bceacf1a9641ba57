package postgres

import (
	"context"

	"tasker.example/tasker"
)

// nextMoves allocates the transition_id of an enqueue. The claim uses the following id. The history
// stores both in the row that ends the attempt.
const nextMoves = `nextval('tasker.step_history_transition_id_seq')`

// orderSQL returns the due time by which the step of a row is ordered: its own or that of its task,
// or null if steps are not ordered by due time.
func orderSQL(row string) string {
	return `(
        SELECT min(o.due_at) FROM tasker.deadlines o
        WHERE o.task_uuid = ` + row + `.task_uuid AND o.step_uuid IN (` + wholeTask + `, ` + row + `.step_uuid) AND o.orders
    )`
}

// readyKey is true if row r of ready_steps belongs to the enqueued step s.
const readyKey = `r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid`

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
