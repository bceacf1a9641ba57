package postgres

import (
	"cmp"
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/lifecycle"
)

var cancelSteps = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
open AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid, s.state, s.namespace, s.handler, s.priority, s.state_since
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = ANY ($1) AND s.state NOT IN ('complete', 'resolved_manually', 'cancelled', 'skipped')
    ORDER BY s.task_uuid, s.step_uuid
    FOR NO KEY UPDATE
),
unqueued AS (
    DELETE FROM tasker.ready_steps r
    USING (SELECT * FROM open o WHERE o.state = 'enqueued') s
    WHERE ` + readyKey + `
),
unheld AS (
    DELETE FROM tasker.held_steps q
    USING (SELECT * FROM open o WHERE o.state = 'enqueued') s
    WHERE q.task_uuid = s.task_uuid AND q.step_uuid = s.step_uuid
    RETURNING q.task_uuid
),
` + forgetFailures("unheld") + `,
moved AS (
    UPDATE tasker.workflow_steps s
    SET state = 'cancelled', state_since = c.at, updated_at = c.at, fence = s.fence + 1, lease_expires_at = NULL,
        timeout_at = NULL, next_retry_at = NULL, kept_report = NULL, expires_at = NULL, awaits_worker_since = NULL, decide_at = NULL, wait_until = NULL, remind_at = NULL,
        unwritten = -greatest(s.unwritten, 0)
    FROM open o
    CROSS JOIN clock c
    WHERE s.task_uuid = o.task_uuid AND s.step_uuid = o.step_uuid
    RETURNING s.task_uuid, s.step_uuid, o.state AS was, CASE WHEN o.state = 'enqueued' THEN o.state_since END AS queued_since, s.attempts, s.worker_uuid, s.state_since,
        s.unwritten, s.moves_id, s.enqueued_at, s.last_attempted_at
)
INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, actor, reason, created_at, operation_uuid,
    moves_id, enqueued_at, claimed_at)
SELECT m.task_uuid, m.step_uuid, m.was, 'cancelled', 'cancel', m.attempts,
    CASE WHEN m.was = 'in_progress' THEN m.worker_uuid END, nullif($2, ''), nullif($3, ''), m.state_since, $4::uuid,
        ` + movesBefore + `
FROM moved m
ORDER BY m.task_uuid, m.step_uuid`

const cancelTasks = `
WITH moved AS (
    UPDATE tasker.tasks t
    SET state = 'cancelled', state_since = clock_timestamp(), updated_at = clock_timestamp(), warn_at = NULL, stale_at = NULL,
        phase = NULL, outcome = coalesce(CASE WHEN t.phase IS NOT NULL THEN 'compensation_stopped' END, nullif($5, ''))
    FROM unnest($1::uuid[], $2::text[]) AS u (task_uuid, state)
    WHERE t.task_uuid = u.task_uuid AND t.state = u.state
    RETURNING t.task_uuid, t.state_since, u.state AS was
)
INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, actor, reason, created_at)
SELECT m.task_uuid, m.was, 'cancelled', $6, nullif($3, ''), nullif($4, ''), m.state_since
FROM moved m
ORDER BY m.task_uuid`

// CancelTask cancels a task and its open steps. It returns a Conflict if the task has ended.
func (db *DB) CancelTask(ctx context.Context, task tasker.ID, by Operator) error {
	return db.InTx(ctx, func(tx *Tx) error {
		state, err := tx.TaskState(ctx, task)
		if err != nil || state == tasker.TaskCancelled {
			return err
		}
		if _, err := lifecycle.Task.Next(state, lifecycle.CancelTask); err != nil {
			return tasker.Errorf(tasker.Conflict, "task %s is %s and cannot be cancelled", task, state)
		}
		return tx.CancelTasks(ctx, []TaskTarget{{TaskUUID: task, State: state}}, Cancellation{Operator: by})
	})
}

// Cancellation describes how and by whom tasks are cancelled.
type Cancellation struct {
	Operator
	Operation *tasker.ID          // nil unless the tasks are items of an operation
	Outcome   tasker.TaskOutcome  // of tasks that are not compensating; optional
	Event     lifecycle.TaskEvent // default lifecycle.CancelTask
}

func (by Cancellation) repair(t TaskTarget) Repair {
	r := Repair{
		TaskUUID: t.TaskUUID, Event: "task_cancelled", Action: "task.cancelled", Subject: t.TaskUUID, Actor: cmp.Or(by.Actor, "unknown"),
		Notes: "the task was cancelled: " + cmp.Or(by.Reason, "no reason given"),
		Data:  map[string]any{"task_uuid": t.TaskUUID, "reason": by.Reason, "from_state": t.State},
	}
	if by.Operation != nil {
		r.Data["operation_uuid"] = by.Operation
	}
	return r
}

// CancelTasks cancels locked tasks, whose states must allow it, and their open steps.
func (tx *Tx) CancelTasks(ctx context.Context, list []TaskTarget, by Cancellation) error {
	tasks, states, repairs := make([]tasker.ID, len(list)), make([]string, len(list)), make([]Repair, len(list))
	for i, t := range list {
		tasks[i], states[i] = t.TaskUUID, string(t.State)
		repairs[i] = by.repair(t)
	}
	if err := tx.cancelOpenSteps(ctx, tasks, by.Operator, by.Operation); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, cancelTasks, tasks, states, by.Actor, by.Reason, string(by.Outcome), cmp.Or(by.Event, lifecycle.CancelTask)); err != nil {
		return fmt.Errorf("cancel tasks: %w", err)
	}
	return tx.RecordRepairs(ctx, repairs)
}

func (tx *Tx) cancelOpenSteps(ctx context.Context, tasks []tasker.ID, by Operator, operation *tasker.ID) error {
	if err := tx.lockEnqueuedOf(ctx, tasks); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, cancelSteps, tasks, by.Actor, by.Reason, nullable(operation)); err != nil {
		return fmt.Errorf("cancel steps: %w", err)
	}
	return tx.endHumanSteps(ctx, tasks)
}

// TaskTarget describes the state of a task that decides which actions are allowed.
type TaskTarget struct {
	TaskUUID  tasker.ID
	State     tasker.TaskState
	Recovered bool // the task continued automatically while its investigation was open
	ByHand    bool // an operator opened the investigation
	Undone    bool // the task is compensating
}

const selectTaskTargets = `
SELECT t.task_uuid, t.state, EXISTS (
    SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid AND d.resolution_status = 'pending' AND d.recovered_at IS NOT NULL
) AS recovered, EXISTS (
    SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid AND d.resolution_status = 'pending' AND d.dlq_reason = 'manual_dlq'
) AS by_hand, t.phase IS NOT NULL AS undone
FROM unnest($1::uuid[]) AS u (task_uuid)
JOIN tasker.tasks t ON t.task_uuid = u.task_uuid`

// TaskTargets returns the targets of tasks. The caller holds the task locks.
func (tx *Tx) TaskTargets(ctx context.Context, tasks []tasker.ID) ([]TaskTarget, error) {
	list, err := collect[TaskTarget](ctx, tx, selectTaskTargets, tasks)
	return list, wrap(err, "read the states of tasks")
}

// TaskState locks a task and returns its state, or NotFound.
func (tx *Tx) TaskState(ctx context.Context, task tasker.ID) (tasker.TaskState, error) {
	state, err := column[tasker.TaskState](ctx, tx, `SELECT state FROM tasker.tasks WHERE task_uuid = $1 FOR NO KEY UPDATE`, task)
	switch {
	case err != nil:
		return "", fmt.Errorf("lock task: %w", err)
	case len(state) == 0:
		return "", noTask(task)
	}
	return state[0], nil
}
