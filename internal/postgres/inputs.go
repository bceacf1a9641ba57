package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
)

// MeasureInputs stores the sizes of the inputs of enqueued steps. It takes at most the duration
// within and returns the number of measured steps.
func (db *DB) MeasureInputs(ctx context.Context, steps []tasker.StepRef, within time.Duration) (n int, err error) {
	tasks, ids := toRefArrays(steps)
	err = retry(ctx, func() error {
		return db.pool.QueryRow(ctx, statement("measureInputs"), tasks, ids, tasker.MaxClaimBytes, within).Scan(&n)
	})
	return n, wrapError(err, "measure the inputs of steps")
}

// A TooLargeStep is an enqueued step whose inputs exceed the limit. Sizes are in bytes.
type TooLargeStep struct {
	tasker.StepRef
	Fence        int64
	ContextBytes int64
	ResultsBytes int64
}

// TooLargeInputs returns the enqueued steps whose inputs exceed the limit.
func (tx *Tx) TooLargeInputs(ctx context.Context, steps []tasker.StepRef) ([]TooLargeStep, error) {
	tasks, ids := toRefArrays(steps)
	list, err := collect[TooLargeStep](ctx, tx, statement("tooLargeInputs"), tasks, ids)
	return list, wrapError(err, "read the sizes of inputs")
}

// TaskContext returns the context of a task, or NotFound.
func (db *DB) TaskContext(ctx context.Context, task tasker.ID) (json.RawMessage, error) {
	list, err := collectColumn[json.RawMessage](ctx, db.pool, statement("taskContext"), task)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the context of a task: %w", err)
	case len(list) == 0:
		return nil, newTaskNotFoundError(task)
	}
	return list[0], nil
}

// StepResult returns the result of a step. The step is identified by id or, if step is nil, by
// name. It returns NotFound, or TooLarge if the result has more than most bytes.
func (db *DB) StepResult(ctx context.Context, task tasker.ID, step *tasker.ID, name string, most int) (json.RawMessage, error) {
	type row struct {
		Name     string
		Bytes    *int64
		Document json.RawMessage
	}
	r, err := queryOne[row](ctx, db.pool, statement("stepResult"), task, step, name, most)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the result of a step: %w", err)
	case r == nil && step != nil:
		return nil, NewStepNotFoundError(task, *step)
	case r == nil:
		return nil, tasker.Errorf(tasker.NotFound, "task %s has no step %q", task, name)
	case r.Bytes == nil:
		return nil, tasker.Errorf(tasker.NotFound,
			"step %s of task %s has no result: it is not complete, or was resolved without a result", r.Name, task)
	case *r.Bytes > int64(most):
		return nil, tasker.Errorf(tasker.TooLarge, "the result of step %s of task %s has %d bytes: the limit of a "+
			"response is %d", r.Name, task, *r.Bytes, most)
	}
	return r.Document, nil
}
