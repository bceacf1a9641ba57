package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"tasker.example/tasker"
)

// Kinds of work between child tasks and their parent steps. Triggers store it in
// tasker.child_signals, so that neither side locks the other.
const (
	ChildEnded  = "child_ended"  // inform a step that its child task has ended
	CancelChild = "cancel_child" // cancel a task whose parent step no longer waits for it
)

// ParentStep is the step that starts a task.
type ParentStep struct {
	tasker.StepRef
	Depth int // nesting depth of the started task
}

var childColumns = append(slices.Clip(newTaskColumns),
	col("parent_task_uuid uuid", func(t **CreatedTask) tasker.ID { return (*t).Parent.TaskUUID }),
	col("parent_step_uuid uuid", func(t **CreatedTask) tasker.ID { return (*t).Parent.StepUUID }),
	col("depth smallint", func(t **CreatedTask) int16 { return int16((*t).Parent.Depth) }),
)

const stepsWithEndedChild = `
SELECT g.parent_task_uuid AS task_uuid, g.parent_step_uuid AS step_uuid
FROM tasker.child_signals g
WHERE g.kind = 'ended' AND g.created_at <= now()
  AND NOT EXISTS (
      SELECT FROM tasker.deferred_work w WHERE w.kind = '` + ChildEnded + `' AND w.task_uuid = g.parent_task_uuid AND w.step_uuid = g.parent_step_uuid
  )
ORDER BY g.created_at
LIMIT $1`

// StepsWithEndedChild returns steps whose child task has ended, oldest first, possibly twice.
func (db *DB) StepsWithEndedChild(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, stepsWithEndedChild, limit)
}

const childrenToCancel = `
SELECT g.child_uuid
FROM tasker.child_signals g
WHERE g.kind = 'cancel' AND g.created_at <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = '` + CancelChild + `' AND w.task_uuid = g.child_uuid)
ORDER BY g.created_at
LIMIT $1`

// ChildrenToCancel returns child tasks whose parent step no longer waits for them, oldest first.
func (db *DB) ChildrenToCancel(ctx context.Context, limit int) ([]tasker.ID, error) {
	return db.dueTasks(ctx, childrenToCancel, limit)
}

const takeEndedChildren = `
DELETE FROM tasker.child_signals g
USING unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
WHERE g.kind = 'ended' AND g.parent_step_uuid = d.step_uuid AND g.parent_task_uuid = d.task_uuid
  AND (d.task_uuid = ANY ($3) OR NOT EXISTS (SELECT FROM tasker.tasks t WHERE t.task_uuid = d.task_uuid))`

// Runs after the signals are removed, so that later changes of a child create new signals.
const stepsOfEndedChildren = `
SELECT s.task_uuid, s.step_uuid, t.template_uuid, s.name, s.fence, c.task_uuid AS child_uuid, c.state AS child_state, ` + isPermanentlyFailed + ` AS given_up
FROM (SELECT DISTINCT u.task_uuid, u.step_uuid FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)) d
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
JOIN tasker.tasks c ON c.task_uuid = s.child_task_uuid
WHERE s.state = 'pending' AND s.decided_at IS NOT NULL AND s.decide_at IS NULL AND t.state NOT IN ('pending', 'complete', 'cancelled')
  AND (c.state IN ('complete', 'cancelled') OR ` + isPermanentlyFailed + `)
ORDER BY s.task_uuid, s.step_uuid`

// isPermanentlyFailed is true if an investigation of task c ended as permanently_failed.
const isPermanentlyFailed = `EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed')`

// StepOfChild is a step whose child task is complete, cancelled or permanently failed.
type StepOfChild struct {
	TaskUUID     tasker.ID
	StepUUID     tasker.ID
	TemplateUUID tasker.ID
	Name         string
	Fence        int64
	ChildUUID    tasker.ID
	ChildState   tasker.TaskState
	GivenUp      bool // permanently failed, and possibly cancelled since
}

// TakeEndedChildren removes the signals of the steps and returns the steps whose child has ended.
// The caller holds the locks of the tasks in held.
func (tx *Tx) TakeEndedChildren(ctx context.Context, held []tasker.ID, steps []tasker.StepRef) ([]StepOfChild, error) {
	tasks, ids := refArrays(steps)
	if _, err := tx.Exec(ctx, takeEndedChildren, tasks, ids, held); err != nil {
		return nil, fmt.Errorf("remove the signals of child tasks: %w", err)
	}
	tasks, ids = refArrays(slices.DeleteFunc(slices.Clone(steps), func(s tasker.StepRef) bool { return !slices.Contains(held, s.TaskUUID) }))
	list, err := collect[StepOfChild](ctx, tx, stepsOfEndedChildren, tasks, ids)
	return list, wrap(err, "read steps whose child task has ended")
}

// Includes the smallest results first, to include as many as possible.
const lastResults = `
SELECT r.name, r.step_uuid, r.bytes, CASE WHEN sum(r.bytes) OVER (ORDER BY r.bytes, r.step_uuid) <= $2 THEN r.results -> 'result' END AS result
FROM (
    SELECT s.name, s.step_uuid, s.results, coalesce(s.results_bytes, octet_length(s.results::text))::bigint AS bytes
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = $1 AND s.child_uuids = '{}' AND s.state = 'complete' AND s.results ? 'result'
) r
ORDER BY r.step_uuid`

// LastResult is the result of a step that no other step depends on.
type LastResult struct {
	Name     string
	StepUUID tasker.ID
	Bytes    int64
	Result   json.RawMessage // nil if the results would exceed the limit
}

// LastResults returns the results of the last steps of a task, up to most bytes.
func (tx *Tx) LastResults(ctx context.Context, task tasker.ID, most int) ([]LastResult, error) {
	list, err := collect[LastResult](ctx, tx, lastResults, task, most)
	return list, wrap(err, "read the results of a child task")
}

const childState = `SELECT c.state, ` + isPermanentlyFailed + ` AS failed FROM tasker.tasks c WHERE c.task_uuid = $1`

// ChildState returns the state of a task, or "" without one, and whether it is permanently failed.
func (tx *Tx) ChildState(ctx context.Context, child tasker.ID) (state tasker.TaskState, failed bool, err error) {
	type row struct {
		State  tasker.TaskState
		Failed bool
	}
	found, err := one[row](ctx, tx, childState, child)
	if err != nil || found == nil {
		return "", false, wrap(err, "read the state of a child task")
	}
	return found.State, found.Failed, nil
}

const ancestors = `
WITH RECURSIVE above AS (
    SELECT t.task_uuid AS child_uuid, t.parent_task_uuid, t.parent_step_uuid, 1 AS level
    FROM tasker.tasks t
    WHERE t.task_uuid = $1 AND t.parent_task_uuid IS NOT NULL
    UNION ALL
    SELECT t.task_uuid, t.parent_task_uuid, t.parent_step_uuid, a.level + 1
    FROM above a
    JOIN tasker.tasks t ON t.task_uuid = a.parent_task_uuid AND t.parent_task_uuid IS NOT NULL
    WHERE a.level < $2
)
SELECT t.task_uuid, t.namespace, t.name, t.state, a.child_uuid, coalesce(s.name, '') AS step,
    coalesce(s.child_task_uuid = a.child_uuid AND s.state = 'pending' AND t.state NOT IN ('complete', 'cancelled'), false) AS waits
FROM above a
JOIN tasker.tasks t ON t.task_uuid = a.parent_task_uuid
LEFT JOIN tasker.workflow_steps s ON s.task_uuid = a.parent_task_uuid AND s.step_uuid = a.parent_step_uuid
ORDER BY a.level`

// Ancestor is a task with a step that started a child task.
type Ancestor struct {
	TaskUUID        tasker.ID
	Namespace, Name string
	State           tasker.TaskState
	ChildUUID       tasker.ID
	Step            string // empty if it no longer exists
	Waits           bool   // the step waits for the child task
}

// Ancestors returns the existing ancestors of a task, parent first.
func (db *DB) Ancestors(ctx context.Context, task tasker.ID) ([]Ancestor, error) {
	list, err := collect[Ancestor](ctx, db.pool, ancestors, task, tasker.MaxChildDepth)
	return list, wrap(err, "read the ancestors of a task")
}

const setChildren = `
WITH child AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) AS d (task_uuid, step_uuid, child_uuid)
),
signalled AS (
    INSERT INTO tasker.child_signals (kind, child_uuid, parent_task_uuid, parent_step_uuid)
    SELECT 'ended', d.child_uuid, d.task_uuid, d.step_uuid
    FROM child d
    JOIN tasker.tasks c ON c.task_uuid = d.child_uuid
    WHERE c.state = 'complete'
    ON CONFLICT DO NOTHING
)
UPDATE tasker.workflow_steps s
SET child_task_uuid = d.child_uuid
FROM child d
WHERE s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid`

// SetChildren stores the child task of each step. The caller holds the task locks.
func (tx *Tx) SetChildren(ctx context.Context, steps []tasker.StepRef, children []tasker.ID) error {
	tasks, ids := refArrays(steps)
	_, err := tx.Exec(ctx, setChildren, tasks, ids, children)
	return wrap(err, "store the child tasks of steps")
}

const detachChild = `
WITH signalled AS (
    INSERT INTO tasker.child_signals (kind, child_uuid, parent_task_uuid, parent_step_uuid)
    SELECT 'cancel', c.task_uuid, c.parent_task_uuid, c.parent_step_uuid
    FROM tasker.tasks c
    WHERE c.task_uuid = $3 AND c.parent_step_uuid = $2 AND c.state NOT IN ('complete', 'cancelled') AND NOT ` + isPermanentlyFailed + `
    ON CONFLICT DO NOTHING
)
UPDATE tasker.workflow_steps s
SET child_task_uuid = NULL, decided_at = NULL, decide_at = coalesce(s.decide_at, clock_timestamp()), wait_until = NULL, remind_at = NULL, updated_at = clock_timestamp()
WHERE s.task_uuid = $1 AND s.step_uuid = $2 AND s.state = 'pending' AND s.child_task_uuid = $3`

// DetachChild lets a locked pending step start another child task and cancels the old one.
func (tx *Tx) DetachChild(ctx context.Context, step tasker.StepRef, child tasker.ID) error {
	tag, err := tx.Exec(ctx, detachChild, step.TaskUUID, step.StepUUID, child)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("step %s, which is locked, does not wait for task %s", step.StepUUID, child)
	}
	return wrap(err, "detach the child task of a step")
}

const takeChildrenToCancel = `
WITH taken AS (
    DELETE FROM tasker.child_signals g
    WHERE g.kind = 'cancel' AND g.child_uuid = ANY ($1)
      AND (g.child_uuid = ANY ($2) OR NOT EXISTS (SELECT FROM tasker.tasks t WHERE t.task_uuid = g.child_uuid))
    RETURNING g.child_uuid, g.parent_task_uuid
)
SELECT c.task_uuid, c.state, k.parent_task_uuid,
    EXISTS (
        SELECT FROM tasker.tasks p
        WHERE p.task_uuid = k.parent_task_uuid AND (p.phase IS NOT NULL OR p.outcome IN ('compensated', 'nothing_to_compensate'))
    ) AS undo
FROM taken k
JOIN tasker.tasks c ON c.task_uuid = k.child_uuid
WHERE c.state NOT IN ('complete', 'cancelled') AND c.phase IS NULL AND NOT ` + isPermanentlyFailed + `
ORDER BY c.task_uuid`

// OrphanedChild is a child task whose parent step no longer waits for it.
type OrphanedChild struct {
	TaskUUID       tasker.ID
	State          tasker.TaskState
	ParentTaskUUID tasker.ID
	Undo           bool // the parent is compensating or compensated
}

// TakeChildrenToCancel removes the signals of the tasks and returns those that are open and not
// compensating. The caller holds the locks of the tasks in held.
func (tx *Tx) TakeChildrenToCancel(ctx context.Context, held, tasks []tasker.ID) ([]OrphanedChild, error) {
	list, err := collect[OrphanedChild](ctx, tx, takeChildrenToCancel, tasks, held)
	return list, wrap(err, "take child tasks to cancel")
}
