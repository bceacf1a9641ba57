package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// movesWithin selects a page of transitions. Details and reasons that exceed the budget of a list
// are replaced by an omission with the path of the full document.
func movesWithin(page, detail, reason, path string) string {
	return fmt.Sprintf(`
		SELECT transition_id AS id, task_uuid, step_uuid, from_state AS "from", to_state AS "to", event, attempt, worker_uuid, coalesce(actor, '') AS actor,
			coalesce(CASE WHEN fits OR length(reason) <= 500 THEN %[3]s ELSE left(%[3]s, 500) || '…' END, '') AS reason,
			CASE WHEN fits THEN %[2]s ELSE tasker.omission(detail, %[4]s) END AS detail, created_at, operation_uuid
		FROM (
			SELECT h.*, sum(coalesce(octet_length(reason), 0) + coalesce(least(
				pg_column_size(detail)::bigint * CASE WHEN pg_column_compression(detail) IS NULL THEN 32 ELSE 98304 END, 98304), 0)) OVER (ORDER BY place) <= %[5]d AS fits
			FROM (SELECT p.*, row_number() OVER () AS place FROM (%[1]s) p) h
		) m
		ORDER BY place`, page, detail, reason, path, listBudget)
}

const (
	taskMoves = `
		SELECT transition_id, task_uuid, NULL::uuid AS step_uuid, from_state, to_state, event, NULL::int AS attempt,
			NULL::uuid AS worker_uuid, actor, reason, detail, created_at, NULL::uuid AS operation_uuid
		FROM tasker.task_transitions
		WHERE task_uuid = $1
		ORDER BY transition_id`
	stepMoves = `
		SELECT transition_id, task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, actor, reason, detail, created_at, operation_uuid
		FROM tasker.workflow_step_transitions
		WHERE task_uuid = $1`

	taskMovesPath = `format('/v1/tasks/%s/transitions', task_uuid)`
	stepMovesPath = `format('/v1/tasks/%s/workflow_steps/%s/transitions', task_uuid, step_uuid)`
	oneMove       = ` || format('?limit=1&offset=%s', $3 + place - 1)`
)

var (
	taskTransitions = movesWithin(taskMoves+` LIMIT $2 OFFSET $3`, "detail", "reason", taskMovesPath+oneMove)
	stepTransitions = movesWithin(stepMoves+` AND step_uuid = $4 ORDER BY transition_id LIMIT $2 OFFSET $3`,
		"detail", "reason", stepMovesPath+oneMove)

	newestTaskTransitions = movesWithin(taskMoves+` DESC LIMIT $2`, "tasker.redact_document(detail)", "tasker.redact_note(reason)", taskMovesPath)
	newestStepTransitions = movesWithin(stepMoves+` AND step_uuid = $3 ORDER BY transition_id DESC LIMIT $2`,
		`CASE WHEN to_state = 'error' THEN tasker.redact_error(detail) ELSE tasker.redact_document(detail) END`,
		"tasker.redact_note(reason)", stepMovesPath)

	// The newest rows of each history are read by key, then merged.
	taskHistory = movesWithin(`
		SELECT * FROM (
			(`+taskMoves+` DESC LIMIT $2) UNION ALL (`+stepMoves+` ORDER BY transition_id DESC LIMIT $2)
		) b
		ORDER BY created_at DESC, step_uuid IS NULL DESC, transition_id DESC LIMIT $2`,
		"detail", "reason", `CASE WHEN step_uuid IS NULL THEN `+taskMovesPath+` ELSE `+stepMovesPath+` END`)
)

// TaskTransitions returns a page of the history of a task, oldest first, or NotFound.
func (db *DB) TaskTransitions(ctx context.Context, task tasker.ID, limit, offset int) ([]tasker.Transition, bool, error) {
	list, more, err := db.transitions(ctx, limit, taskTransitions, task, limit+1, offset)
	if err == nil && len(list) == 0 {
		_, err = db.Task(ctx, task)
	}
	return list, more, err
}

// StepTransitions returns a page of the history of a step, oldest first, or NotFound.
func (db *DB) StepTransitions(ctx context.Context, task, step tasker.ID, limit, offset int) ([]tasker.Transition, bool, error) {
	list, more, err := db.transitions(ctx, limit, stepTransitions, task, limit+1, offset, step)
	if err == nil && len(list) == 0 {
		_, err = db.Step(ctx, task, step)
	}
	return list, more, err
}

// NewestTaskTransitions returns the redacted last transitions of a task, newest first.
func (db *DB) NewestTaskTransitions(ctx context.Context, task tasker.ID, limit int) ([]tasker.Transition, bool, error) {
	return db.transitions(ctx, limit, newestTaskTransitions, task, limit+1)
}

// NewestStepTransitions returns the redacted last transitions of a step, newest first.
func (db *DB) NewestStepTransitions(ctx context.Context, task, step tasker.ID, limit int) ([]tasker.Transition, bool, error) {
	return db.transitions(ctx, limit, newestStepTransitions, task, limit+1, step)
}

// TaskHistory returns the history of a task and its steps, newest first. It is empty if the task does
// not exist.
func (db *DB) TaskHistory(ctx context.Context, task tasker.ID, limit int) ([]tasker.Transition, bool, error) {
	return db.transitions(ctx, limit, taskHistory, task, limit+1)
}

func (db *DB) transitions(ctx context.Context, limit int, sql string, args ...any) ([]tasker.Transition, bool, error) {
	list, more, err := pageOf[tasker.Transition](ctx, db.pool, limit, "read history", sql, args...)
	access.HideTransitions(ctx, list)
	return list, more, err
}
