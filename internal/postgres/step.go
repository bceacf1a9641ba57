package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// stepType returns the type that a step s has in its template.
const stepType = `CASE WHEN s.is_decision THEN 'decision' ELSE s.step_type END`

// maxFailedItems limits how many items of map steps are listed among the steps of a task.
const maxFailedItems = 50

// listBudget limits the total size of the documents in a list.
const listBudget = tasker.MaxAnswerBytes / 2

// Steps returns the steps of a task in template order, except map items. Large documents are
// replaced with a [tasker.OmittedDocument]. It returns NotFound if the task does not exist.
func (db *DB) Steps(ctx context.Context, task tasker.ID) ([]tasker.Step, error) {
	list, err := listSteps(ctx, db.pool, statement("selectSteps"), task, listBudget)
	if err == nil && len(list) == 0 { // every task has a step
		return nil, newTaskNotFoundError(task)
	}
	return list, err
}

// StepsAndFailedItems returns [DB.Steps] followed by the first failed items of map steps and the
// given item.
func (db *DB) StepsAndFailedItems(ctx context.Context, task, item tasker.ID) ([]tasker.Step, error) {
	list, err := db.Steps(ctx, task)
	if err != nil || !slices.ContainsFunc(list, func(s tasker.Step) bool { return s.Items != nil }) {
		return list, err
	}
	items, err := listSteps(ctx, db.pool, statement("selectFailedItems"), task, item, maxFailedItems)
	return append(list, items...), err
}

// RedactErrors redacts the errors of steps, as an investigation displays them.
func (db *DB) RedactErrors(ctx context.Context, steps []tasker.Step) error {
	failed := make([]*string, len(steps))
	for i, s := range steps {
		if len(s.Error) > 0 {
			text := string(s.Error)
			failed[i] = &text
		}
	}
	shown, err := collectColumn[json.RawMessage](ctx, db.pool, statement("redactErrors"), failed)
	if err != nil {
		return fmt.Errorf("redact errors: %w", err)
	}
	for i := range steps {
		steps[i].Error = shown[i]
	}
	return nil
}

// Step returns a step, or NotFound.
func (db *DB) Step(ctx context.Context, task, step tasker.ID) (tasker.Step, error) {
	list, err := listSteps(ctx, db.pool, statement("selectStep"), task, []tasker.ID{step})
	if err != nil {
		return tasker.Step{}, err
	}
	if len(list) > 0 {
		return list[0], addCheckpoint(ctx, db.pool, &list[0])
	}
	if _, err := db.Task(ctx, task); err != nil {
		return tasker.Step{}, err
	}
	return tasker.Step{}, NewStepNotFoundError(task, step)
}

// Step is [DB.Step] within the transaction. It does not check whether the task exists.
func (tx *Tx) Step(ctx context.Context, task, step tasker.ID) (tasker.Step, error) {
	list, err := listSteps(ctx, tx, statement("selectStep"), task, []tasker.ID{step})
	if err != nil {
		return tasker.Step{}, err
	}
	if len(list) == 0 {
		return tasker.Step{}, NewStepNotFoundError(task, step)
	}
	return list[0], nil
}

// StepNamed returns the id of the step with the given name, or NotFound.
func (db *DB) StepNamed(ctx context.Context, task tasker.ID, name string) (tasker.ID, error) {
	found, err := queryFirst[tasker.ID](ctx, db.pool, statement("stepNamed"), task, name)
	if err != nil {
		return tasker.ID{}, fmt.Errorf("find a step by its name: %w", err)
	}
	if found != nil {
		return *found, nil
	}
	if _, err := db.Task(ctx, task); err != nil {
		return tasker.ID{}, err
	}
	return tasker.ID{}, tasker.Errorf(tasker.NotFound, "task %s has no step named %q", task, name)
}

// NewStepNotFoundError returns a NotFound for a step that does not exist in a task.
func NewStepNotFoundError(task, step tasker.ID) error {
	return tasker.Errorf(tasker.NotFound, "task %s has no step %s", task, step)
}

func listSteps(ctx context.Context, q querier, sql string, args ...any) ([]tasker.Step, error) {
	list, err := collect[tasker.Step](ctx, q, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read steps: %w", err)
	}
	completeSteps(ctx, list)
	return list, nil
}

// completeSteps sets the derived fields of steps and redacts them.
func completeSteps(ctx context.Context, list []tasker.Step) {
	for i := range list {
		list[i].Describe()
	}
	access.RedactSteps(ctx, list...)
}
