package postgres

import (
	"context"
	"time"

	"tasker.example/tasker"
)

// LockTasks locks tasks until the transaction ends. The steps of a task may be moved only under
// this lock.
func (tx *Tx) LockTasks(ctx context.Context, tasks []tasker.ID) error {
	return exec(ctx, tx, "lock tasks", statement("lockTasks"), tasks)
}

// LockFreeTasks locks those of the tasks that are not locked by another transaction, and returns
// them.
func (tx *Tx) LockFreeTasks(ctx context.Context, tasks []tasker.ID) ([]tasker.ID, error) {
	list, err := collectColumn[tasker.ID](ctx, tx, statement("lockFreeTasks"), tasks)
	return list, wrapError(err, "lock tasks")
}

// settleTasks derives the states of tasks from all their steps, so that no counter can drift. A
// task makes progress if this transaction has moved one of its steps. Progress extends the
// staleness deadline of a task that is in process or waits for a retry, at most once a second. A
// task that waits for dependencies gets a new deadline only if its next wait changes.
//
// Cancelled steps do not count: an open task has them only while it is being compensated. A task in
// error does not return to waiting for a retry automatically (design.md, section 5). A function
// updates the investigations of tasks that are or were in error.
var settleTasks = settleSQL("true", changedByThisTx)

// settleInSavepoint is settleTasks within a savepoint, where xmin is not the id of the transaction.
// The caller must have moved a step of each task.
var settleInSavepoint = settleSQL("true", "true")

// changedByThisTx is true if this transaction has written a step s of a task.
const changedByThisTx = `bool_or(s.xmin = c.this)`

// settleReported is settleTasks except for tasks that have made progress within the last second and
// remain in process. Their steps need not be counted. In such a task, this transaction has made a
// step ready, or has ended an item while another one is enqueued or in progress. To find such an
// item, the last few that may be in progress are probed.
var settleReported = settleSQL(`NOT (t.state = 'steps_in_process' AND t.state_since >= c.at - interval '1 second'
        AND (t.task_uuid = ANY ((SELECT `+settingIDsSQL(freedTasks)+`)::uuid[]) OR EXISTS (
            SELECT FROM unnest(`+settingIDsSQL(endedItemsOf)+`) AS e (step_uuid)
            JOIN tasker.workflow_steps m ON m.task_uuid = t.task_uuid AND m.step_uuid = e.step_uuid
            CROSS JOIN LATERAL (
                SELECT i.state FROM tasker.workflow_steps i
                WHERE i.task_uuid = m.task_uuid AND i.map_step_uuid = m.step_uuid AND i.item_ordinal <= coalesce(m.item_under_way, m.items_total)
                ORDER BY i.task_uuid, i.map_step_uuid, i.item_ordinal DESC
                LIMIT `+probedItems+`
            ) i
            WHERE i.state IN ('enqueued', 'in_progress')
        )))`, changedByThisTx)

// probedItems is the number of items that are probed.
const probedItems = "8"

// Settings in which concludeSteps stores the tasks in which it made steps ready, and the map steps
// whose items ended.
const (
	freedTasks   = "tasker.freed_tasks"
	endedItemsOf = "tasker.ended_items_of"
)

// settingIDsSQL returns the ids in a setting, which may not be set.
func settingIDsSQL(name string) string {
	return `string_to_array(coalesce(current_setting('` + name + `', true), ''), ',')::uuid[]`
}

// settleSQL returns a statement that settles the tasks t for which condition is true. The aggregate
// touched is true if a step of the task was moved.
func settleSQL(condition, touched string) string {
	return `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at, pg_current_xact_id()::xid AS this),
counted AS MATERIALIZED (
    SELECT t.task_uuid, t.state AS was, t.state_since AS since, t.phase, r.rests,
        h.threshold, n.touched,
        (n.touched OR t.state = 'pending')
        AND (t.state <> r.rests OR r.rests IN ('steps_in_process', 'waiting_for_retry') AND t.state_since < c.at - interval '1 second'
            OR r.rests IN ('steps_in_process', 'waiting_for_retry', 'waiting_for_dependencies') AND t.stale_at - t.state_since <> h.threshold OR r.rests = 'waiting_for_dependencies' AND t.stale_at < n.wait_until AND tt.max_waiting_for_dependencies_minutes IS NULL)
        AND ($2 OR NOT (t.state = 'error' AND r.rests = 'waiting_for_retry')) AS goes
    FROM tasker.tasks t
    CROSS JOIN clock c
    JOIN tasker.task_templates tt ON tt.template_uuid = t.template_uuid
    JOIN tasker.staleness_thresholds st ON st.only_row
    CROSS JOIN LATERAL (
        SELECT
            count(*) FILTER (WHERE s.state <> 'cancelled') AS total,
            count(*) FILTER (WHERE s.state IN ('complete', 'resolved_manually', 'skipped')) AS done,
            count(*) FILTER (WHERE s.state IN ('enqueued', 'in_progress', 'enqueued_for_orchestration') OR s.state = 'pending' AND s.decide_at IS NOT NULL) AS active,
            count(*) FILTER (WHERE s.next_retry_at IS NOT NULL) AS retrying,
            count(*) FILTER (WHERE s.state = 'error' AND s.next_retry_at IS NULL) AS failed,
            min(s.next_retry_at) AS retry_at,
            min(s.wait_until) AS wait_until,
            ` + touched + ` AS touched
        FROM tasker.workflow_steps s
        WHERE s.task_uuid = t.task_uuid
    ) n
    CROSS JOIN LATERAL (SELECT CASE WHEN t.phase IS NOT NULL AND n.done = n.total THEN 'cancelled' ELSE tasker.task_resting_state(n.total, n.done, n.active, n.retrying, n.failed) END AS rests) r
    CROSS JOIN LATERAL (
        SELECT tasker.staleness_threshold(r.rests, tt, st) + tasker.retry_rest(r.rests, tt, CASE r.rests WHEN 'waiting_for_dependencies' THEN n.wait_until ELSE n.retry_at END - c.at) AS threshold
    ) h
    WHERE t.task_uuid = ANY ($1) AND t.state NOT IN ('complete', 'cancelled') AND (t.state <> 'pending' OR t.start_at <= clock_timestamp())
      AND ` + condition + `
),
moved AS (
    UPDATE tasker.tasks t
    SET state = n.rests, state_since = c.at, updated_at = c.at,
        warn_at = c.at + 0.8 * n.threshold, stale_at = c.at + n.threshold,
        completed_at = CASE WHEN n.rests = 'complete' THEN c.at END, phase = CASE WHEN n.rests <> 'cancelled' THEN t.phase END, outcome = CASE WHEN n.rests = 'cancelled' THEN 'compensated' END
    FROM counted n
    CROSS JOIN clock c
    WHERE t.task_uuid = n.task_uuid AND n.goes
    RETURNING t.task_uuid, n.was, t.state, n.since, t.state_since
),
log AS (
    INSERT INTO tasker.task_history (task_uuid, from_state, to_state, actor, reason, created_at)
    SELECT m.task_uuid, m.was, m.state, nullif($3, ''), nullif($4, ''), m.state_since
    FROM moved m
    WHERE m.was <> m.state
    ORDER BY m.task_uuid
)
SELECT n.task_uuid, n.was, n.since, CASE WHEN n.goes THEN n.rests ELSE n.was END AS state, (
    SELECT tasker.follow_settled_tasks(array_agg(e.task_uuid), array_agg(e.was), array_agg(e.state), $2)
    FROM (
        SELECT m.task_uuid, m.was, m.state FROM moved m WHERE 'error' IN (m.was, m.state)
        UNION ALL
        SELECT s.task_uuid, s.was, s.was FROM counted s WHERE s.was = 'error' AND s.touched AND NOT s.goes
    ) e
    HAVING count(*) > 0
) AS followed
FROM counted n`
}

// Settled describes the state of a task before and after the change of its steps.
type Settled struct {
	TaskUUID tasker.ID
	Was      tasker.TaskState
	Since    time.Time // when the task entered the state Was
	State    tasker.TaskState
	Followed *int // number of updated investigations; nil if the task neither is nor was in error
}

// Operator describes who causes a change, and why.
type Operator struct {
	Actor  string // empty for an automatic change
	Reason string
}

// SettleReported is [Tx.SettleTasks] for use after [Tx.ConcludeSteps] in the same transaction. It
// skips tasks that have made progress recently and remain in process.
func (tx *Tx) SettleReported(ctx context.Context, tasks []tasker.ID, by Operator) ([]Settled, error) {
	return tx.settle(ctx, settleReported, tasks, by)
}

// SettleTasks updates the states of locked tasks after their steps have changed. It ignores tasks
// that have not started or have already ended.
func (tx *Tx) SettleTasks(ctx context.Context, tasks []tasker.ID, by Operator) ([]Settled, error) {
	return tx.settle(ctx, settleTasks, tasks, by)
}

func (tx *Tx) settle(ctx context.Context, sql string, tasks []tasker.ID, by Operator) ([]Settled, error) {
	args := []any{tasks, by.Actor != "", by.Actor, by.Reason}
	if tx.joined {
		settled, err := collect[Settled](ctx, tx, settleInSavepoint, args...)
		return settled, wrapError(err, "settle tasks")
	}
	settled, err := collect[Settled](ctx, tx, sql, args...)
	return settled, wrapError(err, "settle tasks")
}
