package core

import (
	"fmt"
	"slices"
	"strings"

	"tasker.example/tasker"
)

// StepActions lists the operator actions on steps.
func StepActions() []tasker.StepAction {
	return []tasker.StepAction{tasker.ResetForRetry, tasker.ResolveManually, tasker.CompleteManually}
}

// ActionEvent returns the event of an action. It returns false for an unknown action.
func ActionEvent(a tasker.StepAction) (StepEvent, bool) {
	return StepEvent(a), slices.Contains(StepActions(), a) // events of actions have the names of the actions
}

// Target describes a step and its task, as far as this determines which actions are allowed.
type Target struct {
	TaskUUID, StepUUID tasker.ID

	Task       tasker.TaskState
	Step       tasker.StepState
	WrittenOff bool // an investigation of the task was ended as permanently_failed
	OpenItems  int  // unfinished items of a map step
}

// Next returns the state of the step after an action. It returns a Conflict with a
// [tasker.StepRefusal] if the action is not allowed.
func (t Target) Next(a tasker.StepAction, interrupt bool) (tasker.StepState, error) {
	if err := t.CheckTask(); err != nil {
		return "", err
	}
	if t.OpenItems > 0 && a == tasker.ResetForRetry {
		return t.Step, nil // only its failed items are reset
	}
	event, _ := ActionEvent(a)
	to, err := StepMoves.Next(t.Step, event)
	if err != nil {
		return "", t.Refusal("step %s is %s%s: %s", t.StepUUID, t.Step, describeWait(t.Step), formatAllowed(t.Allowed()))
	}
	if IsHeld(t.Step) && !interrupt {
		return "", t.Refusal("step %s is %s and continues automatically: set interrupt to take it from the queue "+
			"or its worker; "+
			"later reports of that worker are rejected", t.StepUUID, t.Step)
	}
	if t.OpenItems > 0 && !interrupt {
		return "", t.Refusal("step %s is waiting for %d of its items: set interrupt to end it and resolve these "+
			"items manually",
			t.StepUUID, t.OpenItems)
	}
	return to, nil
}

// CheckTask returns a Conflict if the state of the task rules out actions on all of its steps. If
// not, it returns nil. [Target.Next] includes this check.
func (t Target) CheckTask() error {
	if why := t.describeTaskRefusal(); why != "" {
		return t.Refusal("%s", why)
	}
	return nil
}

func (t Target) describeTaskRefusal() string {
	switch {
	case t.WrittenOff:
		return NewWrittenOffError(t.TaskUUID).Message
	case t.Task == tasker.TaskComplete || t.Task == tasker.TaskCancelled:
		return fmt.Sprintf("task %s is %s: its steps can no longer be changed", t.TaskUUID, t.Task)
	case t.Task == tasker.TaskPending:
		return fmt.Sprintf("task %s has not started yet: wait for its start time, or cancel it", t.TaskUUID)
	default:
		return ""
	}
}

// Refusal returns a Conflict whose details contain the current states and the allowed actions.
func (t Target) Refusal(format string, args ...any) *tasker.Error {
	allowed := t.Allowed()
	return tasker.Errorf(tasker.Conflict, format, args...).WithDetails(tasker.StepRefusal{
		TaskState: t.Task, StepState: t.Step, AllowedActions: allowed, NeedsInterrupt: len(allowed) > 0 && (IsHeld(t.Step) || t.OpenItems > 0),
	})
}

// Allowed lists the actions that the states of the task and the step allow, including those that
// require interrupt.
func (t Target) Allowed() []tasker.StepAction {
	allowed := []tasker.StepAction{}
	if t.describeTaskRefusal() != "" {
		return allowed
	}
	for _, a := range StepActions() {
		event, _ := ActionEvent(a)
		if _, err := StepMoves.Next(t.Step, event); err == nil || t.OpenItems > 0 && a == tasker.ResetForRetry {
			allowed = append(allowed, a)
		}
	}
	return allowed
}

// NewWrittenOffError returns the Conflict for actions on a task that was marked as permanently
// failed. Such a task can only be replaced by a new one.
func NewWrittenOffError(task tasker.ID) *tasker.Error {
	return tasker.Errorf(tasker.Conflict,
		"task %s was written off: its investigation ended as permanently_failed; create a new task with "+
			"recreated_from instead", task)
}

func describeWait(s tasker.StepState) string {
	switch s {
	case tasker.StepEnqueued:
		return " and waits for a worker"
	case tasker.StepPending:
		return " and waits for its dependencies or for an external answer"
	default:
		return ""
	}
}

func formatAllowed(list []tasker.StepAction) string {
	if len(list) == 0 {
		return "no action is allowed"
	}
	names := make([]string, len(list))
	for i, a := range list {
		names[i] = string(a)
	}
	return "allowed actions are " + strings.Join(names, ", ")
}
