package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker"
)

type transitionRow struct {
	TransitionID int64
	TaskUUID     tasker.ID
	StepUUID     *tasker.ID
	FromState    string
	ToState      string
	Event        string
	Attempt      *int
	WorkerUUID   *tasker.ID
	Actor        string
	Reason       string
	Detail       json.RawMessage
	CreatedAt    time.Time
}

// TaskTransitions returns the history of a task, oldest first, and says whether
// there is more. The error is NotFound when there is no such task.
func (db *DB) TaskTransitions(ctx context.Context, task tasker.ID, limit, offset int) ([]tasker.Transition, bool, error) {
	list, more, err := db.transitions(ctx, limit, `
		SELECT transition_id, task_uuid, NULL::uuid AS step_uuid, from_state, to_state, event, NULL::int AS attempt,
			NULL::uuid AS worker_uuid, coalesce(actor, '') AS actor, coalesce(reason, '') AS reason, detail, created_at
		FROM tasker.task_transitions
		WHERE task_uuid = $1
		ORDER BY transition_id LIMIT $2 OFFSET $3`, task, limit+1, offset)
	if err == nil && len(list) == 0 {
		_, err = db.Task(ctx, task)
	}
	return list, more, err
}

// StepTransitions returns the history of a step, oldest first, and says whether
// there is more. The error is NotFound when the task has no such step.
func (db *DB) StepTransitions(ctx context.Context, task, step tasker.ID, limit, offset int) ([]tasker.Transition, bool, error) {
	list, more, err := db.transitions(ctx, limit, `
		SELECT transition_id, task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid,
			coalesce(actor, '') AS actor, coalesce(reason, '') AS reason, detail, created_at
		FROM tasker.workflow_step_transitions
		WHERE task_uuid = $1 AND step_uuid = $4
		ORDER BY transition_id LIMIT $2 OFFSET $3`, task, limit+1, offset, step)
	if err == nil && len(list) == 0 {
		_, err = db.Step(ctx, task, step)
	}
	return list, more, err
}

const newestTaskTransitions = `
SELECT transition_id, task_uuid, NULL::uuid AS step_uuid, from_state, to_state, event, NULL::int AS attempt,
    NULL::uuid AS worker_uuid, coalesce(actor, '') AS actor, coalesce(tasker.redact_note(reason), '') AS reason,
    tasker.redact_document(detail) AS detail, created_at
FROM tasker.task_transitions
WHERE task_uuid = $1
ORDER BY transition_id DESC LIMIT $2`

// NewestTaskTransitions returns the last moves of a task, newest first, and says
// whether there were more before them. They are for an investigation: what its
// evidence must not show is hidden.
func (db *DB) NewestTaskTransitions(ctx context.Context, task tasker.ID, limit int) ([]tasker.Transition, bool, error) {
	return db.transitions(ctx, limit, newestTaskTransitions, task, limit+1)
}

const newestStepTransitions = `
SELECT transition_id, task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid,
    coalesce(actor, '') AS actor, coalesce(tasker.redact_note(reason), '') AS reason,
    CASE WHEN to_state = 'error' THEN tasker.redact_error(detail) ELSE tasker.redact_document(detail) END AS detail, created_at
FROM tasker.workflow_step_transitions
WHERE task_uuid = $1 AND step_uuid = $3
ORDER BY transition_id DESC LIMIT $2`

// NewestStepTransitions returns the last moves of a step, newest first, and says
// whether there were more before them. They are for an investigation: what its
// evidence must not show is hidden.
func (db *DB) NewestStepTransitions(ctx context.Context, task, step tasker.ID, limit int) ([]tasker.Transition, bool, error) {
	return db.transitions(ctx, limit, newestStepTransitions, task, limit+1, step)
}

// Of both histories the newest are read by the key, and of these the newest taken.
const taskHistory = `
SELECT *
FROM (
    (SELECT transition_id, task_uuid, NULL::uuid AS step_uuid, from_state, to_state, event, NULL::int AS attempt,
        NULL::uuid AS worker_uuid, coalesce(actor, '') AS actor, coalesce(reason, '') AS reason, detail, created_at
    FROM tasker.task_transitions
    WHERE task_uuid = $1
    ORDER BY transition_id DESC LIMIT $2)
    UNION ALL
    (SELECT transition_id, task_uuid, step_uuid, from_state, to_state, event, attempt,
        worker_uuid, coalesce(actor, '') AS actor, coalesce(reason, '') AS reason, detail, created_at
    FROM tasker.workflow_step_transitions
    WHERE task_uuid = $1
    ORDER BY transition_id DESC LIMIT $2)
) h
ORDER BY created_at DESC, step_uuid IS NULL DESC, transition_id DESC LIMIT $2`

// TaskHistory returns what has happened to a task and all of its steps, newest
// first, and says whether there is more before that. Of a task that does not exist
// it is empty.
func (db *DB) TaskHistory(ctx context.Context, task tasker.ID, limit int) ([]tasker.Transition, bool, error) {
	return db.transitions(ctx, limit, taskHistory, task, limit+1)
}

func (db *DB) transitions(ctx context.Context, limit int, sql string, args ...any) ([]tasker.Transition, bool, error) {
	rows, err := collect[transitionRow](ctx, db.pool, sql, args...)
	if err != nil {
		return nil, false, fmt.Errorf("read history: %w", known(err))
	}
	rows, more := page(rows, limit)
	out := make([]tasker.Transition, len(rows))
	for i, r := range rows {
		out[i] = tasker.Transition{
			ID: r.TransitionID, TaskUUID: r.TaskUUID, StepUUID: r.StepUUID, From: r.FromState, To: r.ToState, Event: r.Event,
			Attempt: r.Attempt, WorkerUUID: r.WorkerUUID, Actor: r.Actor, Reason: r.Reason, Detail: r.Detail, CreatedAt: r.CreatedAt,
		}
	}
	return out, more, nil
}
