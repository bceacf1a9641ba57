package postgres

import (
	"context"
	"strings"

	"tasker.example/tasker"
)

// readyColumns are the columns of tasker.ready_steps, which has a row for each enqueued step. Claims
// find and delete these rows. The step row is authoritative. To move an enqueued step, lock its row
// in ready_steps first, then the step row.
const readyColumns = `namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes`

// nextMoves allocates the transition_id of an enqueue; the claim has the next one. Both are stored
// in the history with the row that ends the attempt.
const nextMoves = `nextval('tasker.step_history_transition_id_seq')`

// returnReady lists readyColumns of a step s.
var returnReady = "s." + strings.ReplaceAll(readyColumns, ", ", ", s.")

// ready returns a part of a WITH that inserts the steps of another part into ready_steps.
func ready(of string) string {
	return `ready AS (
    INSERT INTO tasker.ready_steps (` + readyColumns + `)
    SELECT ` + readyColumns + ` FROM ` + of + `
)`
}

// readyByDue is ready for steps that may be ordered by due time.
func readyByDue(of string) string {
	return `ready AS (
    INSERT INTO tasker.ready_steps (` + readyColumns + `, due_at)
    SELECT ` + readyColumns + `, ` + orderOf("e") + ` FROM (SELECT * FROM ` + of + `) e
)`
}

// orderOf returns the due time of the step or task of a row, or null if steps are not ordered by it.
func orderOf(row string) string {
	return `(
        SELECT min(o.due_at) FROM tasker.deadlines o
        WHERE o.task_uuid = ` + row + `.task_uuid AND o.step_uuid IN (` + wholeTask + `, ` + row + `.step_uuid) AND o.orders
    )`
}

// readyKey matches the row r of ready_steps of an enqueued step s.
const readyKey = `r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid`

// isOutdated reports whether the step of a row in ready_steps or held_steps has moved.
func isOutdated(row string) string {
	return `NOT EXISTS (
        SELECT FROM tasker.workflow_steps x
        WHERE x.task_uuid = ` + row + `.task_uuid AND x.step_uuid = ` + row + `.step_uuid AND x.state || '' = 'enqueued' AND x.state_since = ` + row + `.state_since
        OFFSET 0 -- one key lookup per row
    )`
}

// deleteOutdated contains parts of a WITH that delete the unlocked rows of the part outdated.
const deleteOutdated = `free AS MATERIALIZED (
    SELECT r.ctid AS ready_row FROM outdated o JOIN tasker.ready_steps r ON r.ctid = o.ready_row FOR UPDATE OF r SKIP LOCKED
),
queued AS (
    DELETE FROM tasker.ready_steps r USING free f WHERE r.ctid = f.ready_row RETURNING r.step_uuid
)`

// outdatedDepth is the number of rows at the head of each queue that removeOutdated checks.
const outdatedDepth = `1000`

// removeOutdated deletes outdated rows at the head of the queues of namespaces $1 and handlers $2,
// and those of the steps $3 and $4 that wait for a limit. It skips locked rows.
var removeOutdated = `
WITH RECURSIVE ` + waitingQueues(byUrgency) + `outdated AS MATERIALIZED (
    SELECT e.ready_row
    FROM queues q
    CROSS JOIN LATERAL (
        SELECT s.ctid AS ready_row, s.task_uuid, s.step_uuid, s.state_since
        FROM tasker.ready_steps s
        WHERE s.namespace = q.namespace AND s.handler = q.handler
        ORDER BY s.priority DESC, s.state_since
        LIMIT ` + outdatedDepth + `
    ) e
    WHERE ` + isOutdated("e") + `
),
` + deleteOutdated + `,
limited AS (
    DELETE FROM tasker.held_steps a
    USING (
        SELECT e.task_uuid, e.step_uuid
        FROM unnest($3::uuid[], $4::uuid[]) AS d (task_uuid, step_uuid)
        CROSS JOIN LATERAL (
            SELECT h.task_uuid, h.step_uuid, h.state_since
            FROM tasker.held_steps h
            WHERE h.task_uuid = d.task_uuid AND h.step_uuid = d.step_uuid AND h.limit_key_id IS NOT NULL
            FOR UPDATE SKIP LOCKED
        ) e
        WHERE ` + isOutdated("e") + `
    ) o
    WHERE a.task_uuid = o.task_uuid AND a.step_uuid = o.step_uuid
    RETURNING a.step_uuid
)
SELECT (SELECT count(*) FROM queued) + (SELECT count(*) FROM limited)`

// RemoveOutdated deletes the outdated rows at the head of a claimant's queues, and those of steps
// that wait for a limit. It returns their number.
func (db *DB) RemoveOutdated(ctx context.Context, c Claimant, steps []tasker.StepRef) (n int64, err error) {
	tasks, ids := refArrays(steps)
	n, err = value[int64](ctx, db.pool, removeOutdated, c.Namespaces, c.Handlers, tasks, ids)
	return n, wrap(err, "remove outdated rows of ready_steps")
}

// lockReady is a part of a FROM that locks the rows of an enqueued or parked step s in ready_steps
// and held_steps. Claims read both.
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

// LockEnqueued locks the enqueued ones of steps against claims. Call it before locking the row of a
// step that may be enqueued.
func (tx *Tx) LockEnqueued(ctx context.Context, steps []tasker.StepRef) error {
	tasks, ids := refArrays(steps)
	return exec(ctx, tx, "lock enqueued steps", lockEnqueued, tasks, ids)
}

const lockEnqueuedOf = `
SELECT e.step_uuid
FROM tasker.workflow_steps s` + lockReady + `
WHERE s.task_uuid = ANY ($1) AND s.state || '' = 'enqueued'`

// lockEnqueuedOf is [Tx.LockEnqueued] for all steps of tasks.
func (tx *Tx) lockEnqueuedOf(ctx context.Context, tasks []tasker.ID) error {
	return exec(ctx, tx, "lock enqueued steps", lockEnqueuedOf, tasks)
}
