package postgres

import (
	"context"
	"time"

	"tasker.example/tasker"
)

// Locked in key order and not FOR UPDATE, because updates of child rows take key shares.
const lockTasks = `
SELECT task_uuid FROM tasker.tasks WHERE task_uuid = ANY ($1) ORDER BY task_uuid FOR NO KEY UPDATE`

const lockFreeTasks = `
SELECT task_uuid FROM tasker.tasks WHERE task_uuid = ANY ($1) ORDER BY task_uuid FOR NO KEY UPDATE SKIP LOCKED`

// LockTasks locks tasks until the transaction ends; steps may only be moved under this lock.
func (tx *Tx) LockTasks(ctx context.Context, tasks []tasker.ID) error {
	_, err := tx.Exec(ctx, lockTasks, tasks)
	return wrap(err, "lock tasks")
}

// LockFreeTasks holds those of the tasks that nobody else holds, and returns them.
func (tx *Tx) LockFreeTasks(ctx context.Context, tasks []tasker.ID) ([]tasker.ID, error) {
	list, err := column[tasker.ID](ctx, tx, lockFreeTasks, tasks)
	return list, wrap(err, "lock tasks")
}

// The state of a task is computed from all its steps each time, so no counter can drift.
// Intermediate states are written into the history. A task that stays in process or waits for a
// retry has made progress, which moves its staleness deadline at most once a second. One that
// waits for dependencies restarts only if its next wait is another one. Only steps moved in this
// transaction count as progress.
//
// Cancelled steps do not count: an open task has them only while it compensates. A task in error
// does not return to waiting for a retry by itself (design.md, section 5). A function updates the
// investigations of tasks that are or were in error.
var settleTasks = settle("true", changedByThisTx)

// settleInSavepoint is settleTasks behind a savepoint, where rows are not written by the transaction
// itself. The caller has moved a step of each task.
var settleInSavepoint = settle("true", "true")

// changedByThisTx is true of a task when this transaction has written one of its steps s.
const changedByThisTx = `bool_or(s.xmin = c.this)`

// settleReported is settleTasks without tasks that made recent progress and stay in process: this
// transaction made one of their steps ready, or ended an item while another is with a worker or in
// the queue. Their steps need not be counted. Steps are counted if neither the last item under way
// nor the few before it are under way.
var settleReported = settle(`NOT (t.state = 'steps_in_process' AND t.state_since >= c.at - interval '1 second'
        AND (t.task_uuid = ANY ((SELECT `+settingIDs(freedTasks)+`)::uuid[]) OR EXISTS (
            SELECT FROM unnest(`+settingIDs(endedItemsOf)+`) AS e (step_uuid)
            JOIN tasker.workflow_steps m ON m.task_uuid = t.task_uuid AND m.step_uuid = e.step_uuid
            CROSS JOIN LATERAL (
                SELECT i.state FROM tasker.workflow_steps i
                WHERE i.task_uuid = m.task_uuid AND i.map_step_uuid = m.step_uuid AND i.item_ordinal <= coalesce(m.item_under_way, m.items_total)
                ORDER BY i.task_uuid, i.map_step_uuid, i.item_ordinal DESC
                LIMIT `+probedItems+`
            ) i
            WHERE i.state IN ('enqueued', 'in_progress')
        )))`, changedByThisTx)

// probedItems is how many items a report looks at to find one that is under way.
const probedItems = "8"

// What concludeSteps leaves in settings for its transaction: the tasks of the steps that it
// made ready, and the map steps of which items ended.
const (
	freedTasks   = "tasker.freed_tasks"
	endedItemsOf = "tasker.ended_items_of"
)

// settingIDs spells the list of ids that a setting has; none when it is not set.
func settingIDs(name string) string {
	return `string_to_array(coalesce(current_setting('` + name + `', true), ''), ',')::uuid[]`
}

// settle returns the statement for those of the tasks t for which a condition is true; touched
// says whether a step of one was moved.
func settle(condition, touched string) string {
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

// A Settled is a task after its steps have changed, with its old and new state.
type Settled struct {
	TaskUUID tasker.ID
	Was      tasker.TaskState
	Since    time.Time // since when it was there
	State    tasker.TaskState
	Followed *int // investigations that were told of it; nil when none of the tasks was or is in error
}

// An Operator is the person who causes a move; Actor is empty without one.
type Operator struct {
	Actor  string
	Reason string
}

// SettleReported is [Tx.SettleTasks] after [Tx.ConcludeSteps] in the same transaction. It leaves out
// tasks that stay in process, as those of a report.
func (tx *Tx) SettleReported(ctx context.Context, tasks []tasker.ID, by Operator) ([]Settled, error) {
	return tx.settle(ctx, settleReported, tasks, by)
}

// SettleTasks brings tasks to rest after their steps have changed. The caller
// holds their locks. Tasks that are finished, or that have not started, stay.
func (tx *Tx) SettleTasks(ctx context.Context, tasks []tasker.ID, by Operator) ([]Settled, error) {
	return tx.settle(ctx, settleTasks, tasks, by)
}

func (tx *Tx) settle(ctx context.Context, sql string, tasks []tasker.ID, by Operator) ([]Settled, error) {
	var settled []Settled
	var err error
	if tx.joined {
		settled, err = collect[Settled](ctx, tx, settleInSavepoint, tasks, by.Actor != "", by.Actor, by.Reason)
	} else {
		settled, err = collect[Settled](ctx, tx, sql, tasks, by.Actor != "", by.Actor, by.Reason)
	}
	return settled, wrap(err, "settle tasks")
}
