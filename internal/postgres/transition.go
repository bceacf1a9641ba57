package postgres

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// TaskTransitions returns a page of a task's history, oldest first, and reports whether there are
// more. It returns NotFound if the task does not exist.
func (db *DB) TaskTransitions(ctx context.Context, task tasker.ID, limit, offset int) ([]tasker.Transition, bool, error) {
	list, more, err := db.listTransitions(ctx, limit, statement("taskTransitions"), task, limit+1, offset)
	if err == nil && len(list) == 0 {
		_, err = db.Task(ctx, task)
	}
	return list, more, err
}

// StepTransitions returns a page of a step's history, oldest first, and reports whether there are
// more. It returns NotFound if the step does not exist.
func (db *DB) StepTransitions(ctx context.Context, task, step tasker.ID, limit, offset int) ([]tasker.Transition, bool, error) {
	list, more, err := db.listTransitions(ctx, limit, statement("stepTransitions"), task, limit+1, offset, step)
	if err == nil && len(list) == 0 {
		_, err = db.Step(ctx, task, step)
	}
	return list, more, err
}

// NewestTaskTransitions returns the latest transitions of a task, newest first and redacted.
func (db *DB) NewestTaskTransitions(ctx context.Context, task tasker.ID, limit int) ([]tasker.Transition, bool, error) {
	return db.listTransitions(ctx, limit, statement("newestTaskTransitions"), task, limit+1)
}

// NewestStepTransitions returns the latest transitions of a step, newest first and redacted.
func (db *DB) NewestStepTransitions(ctx context.Context, task, step tasker.ID, limit int) ([]tasker.Transition, bool, error) {
	return db.listTransitions(ctx, limit, statement("newestStepTransitions"), task, limit+1, step)
}

// TaskHistory returns the history of a task and its steps, newest first. It is empty if the task
// does not exist.
func (db *DB) TaskHistory(ctx context.Context, task tasker.ID, limit int) ([]tasker.Transition, bool, error) {
	return db.listTransitions(ctx, limit, statement("taskHistory"), task, limit+1)
}

func (db *DB) listTransitions(ctx context.Context, limit int, sql string, args ...any) ([]tasker.Transition, bool,
	error) {
	list, more, err := queryPage[tasker.Transition](ctx, db.pool, limit, "read history", sql, args...)
	access.RedactTransitions(ctx, list)
	return list, more, err
}
