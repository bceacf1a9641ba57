package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"tasker.example/tasker"
)

// Kinds of work between child tasks and their parent steps. Triggers store it in
// tasker.child_signals, so that neither side has to lock the other.
const (
	ChildEnded  = "child_ended"  // inform a parent step that its child task has ended
	CancelChild = "cancel_child" // cancel a child task whose parent step no longer waits for it
)

// ParentStep is the step that starts a child task.
type ParentStep struct {
	tasker.StepRef
	Depth int // nesting depth of the child task
}

// StepsWithEndedChild returns steps whose child task has ended, oldest first. A step may occur
// twice.
func (db *DB) StepsWithEndedChild(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.findDueSteps(ctx, statement("stepsWithEndedChild"), limit)
}

// ChildrenToCancel returns child tasks whose parent step no longer waits for them, oldest first.
func (db *DB) ChildrenToCancel(ctx context.Context, limit int) ([]tasker.ID, error) {
	return db.findDueTasks(ctx, statement("childrenToCancel"), limit)
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
	GivenUp      bool // permanently failed; it may have been cancelled since
}

// TakeEndedChildren removes the signals for steps of locked tasks and returns those steps whose
// child task has ended. The argument held contains the tasks that the caller has locked.
func (tx *Tx) TakeEndedChildren(ctx context.Context, held []tasker.ID, steps []tasker.StepRef) ([]StepOfChild, error) {
	tasks, ids := toRefArrays(steps)
	if _, err := tx.Exec(ctx, statement("takeEndedChildren"), tasks, ids, held); err != nil {
		return nil, fmt.Errorf("remove the signals of child tasks: %w", err)
	}
	tasks, ids = toRefArrays(slices.DeleteFunc(slices.Clone(steps), func(s tasker.StepRef) bool { return !slices.Contains(held, s.TaskUUID) }))
	list, err := collect[StepOfChild](ctx, tx, statement("stepsOfEndedChildren"), tasks, ids)
	return list, wrapError(err, "read steps whose child task has ended")
}

// LastResult is the result of a step that no other step depends on.
type LastResult struct {
	Name     string
	StepUUID tasker.ID
	Bytes    int64
	Result   json.RawMessage // nil if the results together would exceed the limit
}

// LastResults returns the results of the last steps of a task. Their total size is at most most
// bytes.
func (tx *Tx) LastResults(ctx context.Context, task tasker.ID, most int) ([]LastResult, error) {
	list, err := collect[LastResult](ctx, tx, statement("lastResults"), task, most)
	return list, wrapError(err, "read the results of a child task")
}

// ChildState returns the state of a task and whether it was marked as permanently failed. The state
// is "" if the task does not exist.
func (tx *Tx) ChildState(ctx context.Context, child tasker.ID) (state tasker.TaskState, failed bool, err error) {
	type row struct {
		State  tasker.TaskState
		Failed bool
	}
	found, err := queryOne[row](ctx, tx, statement("childState"), child)
	if err != nil || found == nil {
		return "", false, wrapError(err, "read the state of a child task")
	}
	return found.State, found.Failed, nil
}

// Ancestor is a task and the step of it that started a child task.
type Ancestor struct {
	TaskUUID        tasker.ID
	Namespace, Name string
	State           tasker.TaskState
	ChildUUID       tasker.ID
	Step            string // empty if the step no longer exists
	Waits           bool   // the step waits for the child task
}

// Ancestors returns those ancestors of a task that still exist, parent first.
func (db *DB) Ancestors(ctx context.Context, task tasker.ID) ([]Ancestor, error) {
	list, err := collect[Ancestor](ctx, db.pool, statement("ancestors"), task, tasker.MaxChildDepth)
	return list, wrapError(err, "read the ancestors of a task")
}

// SetChildren stores which child task each step waits for. The caller must hold the task locks.
func (tx *Tx) SetChildren(ctx context.Context, steps []tasker.StepRef, children []tasker.ID) error {
	tasks, ids := toRefArrays(steps)
	_, err := tx.Exec(ctx, statement("setChildren"), tasks, ids, children)
	return wrapError(err, "store the child tasks of steps")
}

// DetachChild lets a locked pending step start a new child task. The old one will be cancelled.
func (tx *Tx) DetachChild(ctx context.Context, step tasker.StepRef, child tasker.ID) error {
	tag, err := tx.Exec(ctx, statement("detachChild"), step.TaskUUID, step.StepUUID, child)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("step %s, which is locked, does not wait for task %s", step.StepUUID, child)
	}
	return wrapError(err, "detach the child task of a step")
}

// OrphanedChild is a child task whose parent step no longer waits for it.
type OrphanedChild struct {
	TaskUUID       tasker.ID
	State          tasker.TaskState
	ParentTaskUUID tasker.ID
	Undo           bool // the parent task is being or has been compensated
}

// TakeChildrenToCancel removes the signals for locked tasks and returns those that are open and not
// being compensated. The argument held contains the tasks that the caller has locked.
func (tx *Tx) TakeChildrenToCancel(ctx context.Context, held, tasks []tasker.ID) ([]OrphanedChild, error) {
	list, err := collect[OrphanedChild](ctx, tx, statement("takeChildrenToCancel"), tasks, held)
	return list, wrapError(err, "take child tasks to cancel")
}
