package postgres

import (
	"context"
	"fmt"
	"strings"

	"tasker.example/tasker"
)

// A step that is enqueued has a row in tasker.ready_steps, where claims find it in the
// order of urgency and delete it. The row of the step has its state: a claim that finds
// it elsewhere hands out nothing.
//
// Whoever moves an enqueued step locks its row in ready_steps first, as claims do, and
// the row of the step afterwards.
const readyColumns = `namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes`

// nextMoves draws the transition_id of the enqueue of an attempt; that of its claim is the
// next number. The history gets both with the row that ends the attempt.
const nextMoves = `nextval('tasker.step_history_transition_id_seq')`

// returnReady returns readyColumns of a step s.
var returnReady = "s." + strings.ReplaceAll(readyColumns, ", ", ", s.")

// ready is a part of a WITH that makes the steps of another part ready, which returns
// readyColumns.
func ready(of string) string {
	return `ready AS (
    INSERT INTO tasker.ready_steps (` + readyColumns + `)
    SELECT ` + readyColumns + ` FROM ` + of + `
)`
}

// readyByDue is ready where steps may come first by when they are due. A report and the creation of tasks
// do without: steps that are ordered so are always decided.
func readyByDue(of string) string {
	return `ready AS (
    INSERT INTO tasker.ready_steps (` + readyColumns + `, due_at)
    SELECT ` + readyColumns + `, ` + orderOf("e") + ` FROM (SELECT * FROM ` + of + `) e
)`
}

// orderOf is by when a step that a row names, or its task, is due, if that is the order of its steps.
func orderOf(row string) string {
	return `(
        SELECT min(o.due_at) FROM tasker.deadlines o
        WHERE o.task_uuid = ` + row + `.task_uuid AND o.step_uuid IN (` + wholeTask + `, ` + row + `.step_uuid) AND o.orders
    )`
}

// readyKey is true of the row r of ready_steps that a step s has if it is enqueued.
const readyKey = `r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid`

// lockReady is a part of a FROM that locks the row in ready_steps of a step s, if it is
// enqueued, and the one in held_steps, if it was put aside: claims hand out of both.
const lockReady = `
CROSS JOIN LATERAL (
    SELECT * FROM (
        SELECT r.step_uuid
        FROM tasker.ready_steps r
        WHERE ` + readyKey + ` AND r.task_uuid = s.task_uuid
        FOR NO KEY UPDATE
    ) r
    UNION ALL
    SELECT * FROM (
        SELECT h.step_uuid
        FROM tasker.held_steps h
        WHERE h.task_uuid = s.task_uuid AND h.step_uuid = s.step_uuid
        FOR NO KEY UPDATE
    ) h
) e`

const lockEnqueued = `
SELECT e.step_uuid
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid` + lockReady

// LockEnqueued holds those of the steps that are enqueued, so that none of them is
// claimed. It waits for claims that are under way. Whoever locks the row of a step that
// may be enqueued calls it before.
func (tx *Tx) LockEnqueued(ctx context.Context, steps []tasker.StepRef) error {
	tasks, ids := refArrays(steps)
	if _, err := tx.Exec(ctx, lockEnqueued, tasks, ids); err != nil {
		return fmt.Errorf("lock enqueued steps: %w", err)
	}
	return nil
}

const lockEnqueuedOf = `
SELECT e.step_uuid
FROM tasker.workflow_steps s` + lockReady + `
WHERE s.task_uuid = ANY ($1) AND s.state || '' = 'enqueued'`

// lockEnqueuedOf is [Tx.LockEnqueued] for all steps of tasks.
func (tx *Tx) lockEnqueuedOf(ctx context.Context, tasks []tasker.ID) error {
	if _, err := tx.Exec(ctx, lockEnqueuedOf, tasks); err != nil {
		return fmt.Errorf("lock enqueued steps: %w", err)
	}
	return nil
}
