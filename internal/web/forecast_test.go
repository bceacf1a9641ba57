package web

import (
	"fmt"
	"testing"
	"time"

	"tasker.example/tasker"
)

func TestForecastOfAnAction(t *testing.T) {
	soon := time.Now().Add(time.Minute)
	state := func(steps []tasker.Step, states ...tasker.StepState) []tasker.Step {
		for i, s := range states {
			steps[i].State, steps[i].Type = s, tasker.StandardStep
		}
		return steps
	}
	const pending, enqueued, running, done, failed = tasker.StepPending, tasker.StepEnqueued, tasker.StepInProgress, tasker.StepComplete, tasker.StepError
	fork := func() []tasker.Step { return stepsOf("a", "b: a", "c: a", "d: b c") }
	for _, tt := range []struct {
		name   string
		steps  []tasker.Step
		at     int
		action tasker.StepAction
		change func([]tasker.Step)
		want   string
	}{
		{"reset runs again", state(fork(), done, failed, done, pending), 1, tasker.ResetForRetry, nil, "enqueued [] [] [d] steps_in_process"},
		{"resolve lets the next go", state(fork(), done, failed, done, pending), 1, tasker.ResolveManually, nil, "resolved_manually [d] [] [] steps_in_process"},
		{"another parent still runs", state(fork(), done, failed, running, pending), 1, tasker.CompleteManually, nil, "complete [] [] [d] steps_in_process"},
		{"another parent has failed", state(fork(), done, failed, failed, pending), 1, tasker.CompleteManually, nil, "complete [] [] [d] error"},
		{"another parent is tried again", state(fork(), done, failed, failed, pending), 1, tasker.CompleteManually, func(s []tasker.Step) { s[2].NextRetryAt = &soon }, "complete [] [] [d] waiting_for_retry"},
		{"the last one", state(fork(), done, done, done, failed), 3, tasker.ResolveManually, nil, "resolved_manually [] [] [] complete"},
		{"an external one waits then", state(fork(), done, failed, done, pending), 1, tasker.CompleteManually, func(s []tasker.Step) { s[3].Type = tasker.ExternalStep }, "complete [] [d] [] waiting_for_dependencies"},
		{"an external one is reset", state(fork(), done, failed, done, pending), 1, tasker.ResetForRetry, func(s []tasker.Step) { s[1].Type = tasker.ExternalStep }, "pending [] [] [d] waiting_for_dependencies"},
		{"one that has not begun", state(fork(), enqueued, pending, pending, pending), 1, tasker.CompleteManually, nil, "complete [] [] [d] steps_in_process"},
		{"one that waits for its retry", state(fork(), done, failed, done, pending), 1, tasker.ResetForRetry, func(s []tasker.Step) { s[1].NextRetryAt = &soon }, "enqueued [] [] [d] steps_in_process"},
		{"what is not allowed changes nothing", state(fork(), done, done, done, done), 1, tasker.ResetForRetry, nil, "complete [] [] [] complete"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.change != nil {
				tt.change(tt.steps)
			}
			before := fmt.Sprint(tt.steps)
			f := newForecast(tt.steps, tt.steps[tt.at].UUID, tt.action)
			if got := fmt.Sprintf("%s %v %v %v %s", f.Step, f.Enqueued, f.Outside, f.Waiting, f.Task); got != tt.want {
				t.Errorf("foresees %s, want %s", got, tt.want)
			}
			if fmt.Sprint(tt.steps) != before {
				t.Error("changed the steps themselves")
			}
		})
	}
}
