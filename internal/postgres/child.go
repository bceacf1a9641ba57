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

// StepsWithEndedChild returns steps whose child task has ended, oldest first, possibly twice.
func (db *DB) StepsWithEndedChild(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, stmt("stepsWithEndedChild"), limit)
}

// ChildrenToCancel returns child tasks whose parent step no longer waits for them, oldest first.
func (db *DB) ChildrenToCancel(ctx context.Context, limit int) ([]tasker.ID, error) {
	return db.dueTasks(ctx, stmt("childrenToCancel"), limit)
}

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
	if _, err := tx.Exec(ctx, stmt("takeEndedChildren"), tasks, ids, held); err != nil {
		return nil, fmt.Errorf("remove the signals of child tasks: %w", err)
	}
	tasks, ids = refArrays(slices.DeleteFunc(slices.Clone(steps), func(s tasker.StepRef) bool { return !slices.Contains(held, s.TaskUUID) }))
	list, err := collect[StepOfChild](ctx, tx, stmt("stepsOfEndedChildren"), tasks, ids)
	return list, wrap(err, "read steps whose child task has ended")
}

// LastResult is the result of a step that no other step depends on.
type LastResult struct {
	Name     string
	StepUUID tasker.ID
	Bytes    int64
	Result   json.RawMessage // nil if the results would exceed the limit
}

// LastResults returns the results of the last steps of a task, up to most bytes.
func (tx *Tx) LastResults(ctx context.Context, task tasker.ID, most int) ([]LastResult, error) {
	list, err := collect[LastResult](ctx, tx, stmt("lastResults"), task, most)
	return list, wrap(err, "read the results of a child task")
}

// ChildState returns the state of a task, or "" without one, and whether it is permanently failed.
func (tx *Tx) ChildState(ctx context.Context, child tasker.ID) (state tasker.TaskState, failed bool, err error) {
	type row struct {
		State  tasker.TaskState
		Failed bool
	}
	found, err := one[row](ctx, tx, stmt("childState"), child)
	if err != nil || found == nil {
		return "", false, wrap(err, "read the state of a child task")
	}
	return found.State, found.Failed, nil
}

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
	list, err := collect[Ancestor](ctx, db.pool, stmt("ancestors"), task, tasker.MaxChildDepth)
	return list, wrap(err, "read the ancestors of a task")
}

// SetChildren stores the child task of each step. The caller holds the task locks.
func (tx *Tx) SetChildren(ctx context.Context, steps []tasker.StepRef, children []tasker.ID) error {
	tasks, ids := refArrays(steps)
	_, err := tx.Exec(ctx, stmt("setChildren"), tasks, ids, children)
	return wrap(err, "store the child tasks of steps")
}

// DetachChild lets a locked pending step start another child task and cancels the old one.
func (tx *Tx) DetachChild(ctx context.Context, step tasker.StepRef, child tasker.ID) error {
	tag, err := tx.Exec(ctx, stmt("detachChild"), step.TaskUUID, step.StepUUID, child)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("step %s, which is locked, does not wait for task %s", step.StepUUID, child)
	}
	return wrap(err, "detach the child task of a step")
}

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
	list, err := collect[OrphanedChild](ctx, tx, stmt("takeChildrenToCancel"), tasks, held)
	return list, wrap(err, "take child tasks to cancel")
}
