package postgres

import (
	"cmp"
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// CancelTask cancels a task and its open steps. If the task is already cancelled, it does nothing.
// It returns a Conflict if the task is complete.
func (db *DB) CancelTask(ctx context.Context, task tasker.ID, by Operator) error {
	return db.InTx(ctx, func(tx *Tx) error {
		state, err := tx.TaskState(ctx, task)
		if err != nil || state == tasker.TaskCancelled {
			return err
		}
		if _, err := core.TaskMoves.Next(state, core.CancelTask); err != nil {
			return tasker.Errorf(tasker.Conflict, "task %s is %s and cannot be cancelled", task, state)
		}
		return tx.CancelTasks(ctx, []TaskTarget{{TaskUUID: task, State: state}}, Cancellation{Operator: by})
	})
}

// Cancellation describes who cancels tasks, why and how.
type Cancellation struct {
	Operator
	Operation *tasker.ID         // nil unless the tasks are items of an operation
	Outcome   tasker.TaskOutcome // outcome of tasks that are not being compensated; may be empty
	Event     core.TaskEvent     // default core.CancelTask
}

func (by Cancellation) toRepair(t TaskTarget) Repair {
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

// CancelTasks cancels tasks and their open steps. The tasks must be locked and in states that allow
// it.
func (tx *Tx) CancelTasks(ctx context.Context, list []TaskTarget, by Cancellation) error {
	tasks, states, repairs := make([]tasker.ID, len(list)), make([]string, len(list)), make([]Repair, len(list))
	for i, t := range list {
		tasks[i], states[i] = t.TaskUUID, string(t.State)
		repairs[i] = by.toRepair(t)
	}
	if err := tx.cancelOpenSteps(ctx, tasks, by.Operator, by.Operation); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, statement("cancelTasks"), tasks, states, by.Actor, by.Reason, string(by.Outcome), cmp.Or(by.Event, core.CancelTask)); err != nil {
		return fmt.Errorf("cancel tasks: %w", err)
	}
	return tx.RecordRepairs(ctx, repairs)
}

func (tx *Tx) cancelOpenSteps(ctx context.Context, tasks []tasker.ID, by Operator, operation *tasker.ID) error {
	if err := tx.lockEnqueuedOf(ctx, tasks); err != nil {
		return err
	}
	if _, err := tx.changeWhole(ctx, tasks, func(c *core.Change) { c.Cancel(by.Actor, by.Reason, operation) }); err != nil {
		return fmt.Errorf("cancel steps: %w", err)
	}
	if err := exec(ctx, tx, "remove deferred releases", statement("forgetReleases"), tasks); err != nil {
		return err
	}
	return tx.endHumanSteps(ctx, tasks)
}

// TaskTarget contains the state of a task, which determines the actions that are allowed on it.
type TaskTarget struct {
	TaskUUID  tasker.ID
	State     tasker.TaskState
	Recovered bool // the task continued while its investigation was open
	ByHand    bool // an operator opened the investigation
	Undone    bool // the task is being compensated
}

// TaskTargets returns the states of tasks. The caller must hold the task locks.
func (tx *Tx) TaskTargets(ctx context.Context, tasks []tasker.ID) ([]TaskTarget, error) {
	list, err := collect[TaskTarget](ctx, tx, statement("selectTaskTargets"), tasks)
	return list, wrapError(err, "read the states of tasks")
}

// TaskState locks a task and returns its state. It returns NotFound if the task does not exist.
func (tx *Tx) TaskState(ctx context.Context, task tasker.ID) (tasker.TaskState, error) {
	state, err := collectColumn[tasker.TaskState](ctx, tx, statement("taskState"), task)
	switch {
	case err != nil:
		return "", fmt.Errorf("lock task: %w", err)
	case len(state) == 0:
		return "", newTaskNotFoundError(task)
	}
	return state[0], nil
}
