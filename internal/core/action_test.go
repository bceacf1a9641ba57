package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
)

// For every pair of states: an action is done, or its refusal lists what is
// allowed, and what it lists is done then.
func TestARefusalListsTheActionsThatAreAllowed(t *testing.T) {
	t.Parallel()
	for _, task := range tasker.TaskStates() {
		for _, step := range tasker.StepStates() {
			for _, writtenOff := range []bool{false, true} {
				for _, a := range StepActions() {
					target := Target{TaskUUID: tasker.NewID(), StepUUID: tasker.NewID(), Task: task, Step: step, WrittenOff: writtenOff}
					t.Run(fmt.Sprintf("%s/%s/%t/%s", task, step, writtenOff, a), func(t *testing.T) { refusal(t, target, a) })
				}
			}
		}
	}
}

func refusal(t *testing.T, target Target, a tasker.StepAction) {
	to, err := target.Next(a, false)
	want, refused := StepMoves.Next(target.Step, StepEvent(a))
	ended := target.WrittenOff || slices.Contains([]tasker.TaskState{tasker.TaskPending, tasker.TaskComplete, tasker.TaskCancelled}, target.Task)
	if err == nil {
		if ended || refused != nil || IsHeld(target.Step) || to != want {
			t.Errorf("it leads to %q", to)
		}
		return
	}
	var known *tasker.Error
	if !errors.As(err, &known) || known.Code != tasker.Conflict {
		t.Fatalf("refused with %v", err)
	}
	said, ok := known.Details.(tasker.StepRefusal)
	if !ok || said.TaskState != target.Task || said.StepState != target.Step || said.AllowedActions == nil {
		t.Fatalf("details %+v", known.Details)
	}
	if slices.Contains(said.AllowedActions, a) && !said.NeedsInterrupt {
		t.Errorf("refused although it is allowed: %+v", said)
	}
	if ended && len(said.AllowedActions) > 0 {
		t.Errorf("allowed: %+v", said)
	}
	for _, b := range StepActions() {
		if _, err := target.Next(b, said.NeedsInterrupt); (err == nil) != slices.Contains(said.AllowedActions, b) {
			t.Errorf("allowed are %v, and %s is refused with %v", said.AllowedActions, b, err)
		}
	}
}

func TestTheTextOfARefusal(t *testing.T) {
	t.Parallel()
	task, step := tasker.NewID(), tasker.NewID()
	for _, tt := range []struct {
		target Target
		want   string
	}{
		{Target{Task: tasker.TaskError, Step: tasker.StepComplete}, "is complete: no action is allowed"},
		{Target{Task: tasker.TaskStepsInProcess, Step: tasker.StepPending}, "is pending and waits for its dependencies or for an external answer: allowed actions are resolve_manually, complete_manually"},
		{Target{Task: tasker.TaskStepsInProcess, Step: tasker.StepEnqueued}, "is enqueued and waits for a worker: allowed actions are resolve_manually, complete_manually"},
		{Target{Task: tasker.TaskStepsInProcess, Step: tasker.StepInProgress}, "is in_progress and continues automatically"},
		{Target{Task: tasker.TaskCancelled, Step: tasker.StepCancelled}, "is cancelled: its steps can no longer be changed"},
		{Target{Task: tasker.TaskPending, Step: tasker.StepPending}, "has not started yet"},
		{Target{Task: tasker.TaskError, Step: tasker.StepError, WrittenOff: true}, "was written off: its investigation ended as permanently_failed"},
	} {
		tt.target.TaskUUID, tt.target.StepUUID = task, step
		if _, err := tt.target.Next(tasker.ResetForRetry, false); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("refused with %v, want %q", err, tt.want)
		}
	}
}
