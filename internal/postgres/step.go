package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// stepType returns the type of a step s in its template.
const stepType = `CASE WHEN s.is_decision THEN 'decision' ELSE s.step_type END`

// Readiness comes from the function that operators call in psql.
var stepColumns = `
SELECT
    s.step_uuid AS uuid, s.task_uuid, s.name, ` + stepType + ` AS type, s.handler, s.state, s.state_since,
    r.dependencies_satisfied, r.retry_eligible, r.ready_for_execution, r.total_parents, r.completed_parents,
    s.attempts, s.max_attempts, s.retryable, s.parent_uuids AS parents,
    CASE WHEN s.state = 'in_progress' THEN s.worker_uuid END AS worker_uuid, s.lease_expires_at,
    s.last_attempted_at, s.last_failure_at, s.next_retry_at, s.created_at, s.updated_at, s.completed_at,
    s.state = 'pending' AND s.decide_at IS NOT NULL AS decision_due, s.decided_at, coalesce(s.skip_reason, '') AS skip_reason,
    CASE WHEN s.step_type <> 'child' THEN s.wait_until END AS wait_until, s.reminders, s.remind_at, s.child_task_uuid,
    CASE WHEN s.step_type = 'external' THEN coalesce((
        SELECT a.assignee FROM tasker.human_steps a WHERE a.task_uuid = s.task_uuid AND a.step_uuid = s.step_uuid
    ), '') ELSE '' END AS assignee,
    s.map_step_uuid, coalesce(s.item_ordinal, 0) AS ordinal, s.item,
    CASE WHEN s.items_total IS NOT NULL THEN tasker.item_counts(s.task_uuid, s.step_uuid) END AS counted,
    ` + checkpointOfStep + ` AS saved, ` + dueOfStep + ` AS due, `

var selectStep = stepColumns + `s.results, s.error
FROM tasker.get_step_readiness_status($1, $2) r
JOIN tasker.workflow_steps s ON s.step_uuid = r.step_uuid
WHERE s.task_uuid = $1`

var selectSteps = stepColumns + `d.results, d.error
FROM tasker.get_step_readiness_status($1) r
JOIN tasker.workflow_steps s ON s.step_uuid = r.step_uuid
LEFT JOIN tasker.step_documents($1, $2) d ON d.step_uuid = s.step_uuid
WHERE s.task_uuid = $1 AND s.map_step_uuid IS NULL
ORDER BY s.step_uuid`

// Items that have failed permanently come first.
var selectFailedItems = stepColumns + `s.results, s.error
FROM tasker.get_step_readiness_status($1, ARRAY(
    SELECT i.step_uuid
    FROM tasker.workflow_steps i
    WHERE i.task_uuid = $1 AND i.map_step_uuid IS NOT NULL AND (i.state = 'error' OR i.step_uuid = $2)
    ORDER BY i.step_uuid = $2 DESC, i.next_retry_at IS NOT NULL, i.map_step_uuid, i.item_ordinal
    LIMIT $3
)) r
JOIN tasker.workflow_steps s ON s.step_uuid = r.step_uuid
WHERE s.task_uuid = $1
ORDER BY s.step_uuid`

// maxFailedItems bounds the items of map steps that are listed with the steps of a task.
const maxFailedItems = 50

// listBudget bounds the documents of one list.
const listBudget = tasker.MaxAnswerBytes / 2

// Steps returns the steps of a task without map items, in template order. Large documents are
// replaced by a [tasker.OmittedDocument]. It returns NotFound if the task does not exist.
func (db *DB) Steps(ctx context.Context, task tasker.ID) ([]tasker.Step, error) {
	list, err := steps(ctx, db.pool, selectSteps, task, listBudget)
	if err == nil && len(list) == 0 { // a task has at least one step
		return nil, noTask(task)
	}
	return list, err
}

// StepsAndFailedItems returns [DB.Steps], the first failed items of map steps and the given item.
func (db *DB) StepsAndFailedItems(ctx context.Context, task, item tasker.ID) ([]tasker.Step, error) {
	list, err := db.Steps(ctx, task)
	if err != nil || !slices.ContainsFunc(list, func(s tasker.Step) bool { return s.Items != nil }) {
		return list, err
	}
	items, err := steps(ctx, db.pool, selectFailedItems, task, item, maxFailedItems)
	return append(list, items...), err
}

// RedactErrors redacts the errors of steps for display in an investigation.
func (db *DB) RedactErrors(ctx context.Context, steps []tasker.Step) error {
	failed := make([]*string, len(steps))
	for i, s := range steps {
		if len(s.Error) > 0 {
			text := string(s.Error)
			failed[i] = &text
		}
	}
	shown, err := column[json.RawMessage](ctx, db.pool, `
		SELECT tasker.redact_error(e.doc::jsonb) AS shown
		FROM unnest($1::text[]) WITH ORDINALITY AS e (doc, n)
		ORDER BY e.n`, failed)
	if err != nil {
		return fmt.Errorf("redact errors: %w", err)
	}
	for i := range steps {
		steps[i].Error = shown[i]
	}
	return nil
}

// Step returns a step of a task, or NotFound.
func (db *DB) Step(ctx context.Context, task, step tasker.ID) (tasker.Step, error) {
	list, err := steps(ctx, db.pool, selectStep, task, []tasker.ID{step})
	if err != nil {
		return tasker.Step{}, err
	}
	if len(list) > 0 {
		return list[0], addCheckpoint(ctx, db.pool, &list[0])
	}
	if _, err := db.Task(ctx, task); err != nil {
		return tasker.Step{}, err
	}
	return tasker.Step{}, NoStep(task, step)
}

// Step is [DB.Step] in a transaction. It does not check whether the task exists.
func (tx *Tx) Step(ctx context.Context, task, step tasker.ID) (tasker.Step, error) {
	list, err := steps(ctx, tx, selectStep, task, []tasker.ID{step})
	if err != nil {
		return tasker.Step{}, err
	}
	if len(list) == 0 {
		return tasker.Step{}, NoStep(task, step)
	}
	return list[0], nil
}

const stepNamed = `
SELECT s.step_uuid FROM tasker.workflow_steps s WHERE s.task_uuid = $1 AND s.name = $2`

// StepNamed returns the step of a task by name, or NotFound.
func (db *DB) StepNamed(ctx context.Context, task tasker.ID, name string) (tasker.ID, error) {
	found, err := firstOf[tasker.ID](ctx, db.pool, stepNamed, task, name)
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

// NoStep returns the error for a step that does not exist in a task.
func NoStep(task, step tasker.ID) error {
	return tasker.Errorf(tasker.NotFound, "task %s has no step %s", task, step)
}

// stepRow contains a step and the columns of its nested structs.
type stepRow struct {
	tasker.Step
	MapStepUUID *tasker.ID
	Ordinal     int
	Item        json.RawMessage
	Counted     *tasker.ItemCounts
	Saved       *tasker.Checkpoint
}

func (r stepRow) step() tasker.Step {
	r.Items, r.Checkpoint = r.Counted, r.Saved
	if r.MapStepUUID != nil {
		r.Map = &tasker.MapItem{StepUUID: *r.MapStepUUID, Ordinal: r.Ordinal, Value: r.Item}
	}
	return r.Step
}

func steps(ctx context.Context, q querier, sql string, args ...any) ([]tasker.Step, error) {
	rows, err := collect[stepRow](ctx, q, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read steps: %w", err)
	}
	list := mapped(rows, stepRow.step)
	access.HideSteps(ctx, list...)
	return list, nil
}
