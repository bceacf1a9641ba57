package saga_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/examples/patterns/saga"
	"tasker.example/tasker/taskertest"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { taskertest.Main(m) }

// An agency has no cars, and cancels at the second attempt.
type agency struct {
	busy      bool
	cancelled []string
}

func (*agency) Book(_ context.Context, _, what string) (string, error) {
	if what == "car" {
		return "", worker.Permanent(errors.New("no car is left"))
	}
	return "booked " + what, nil
}

func (a *agency) Cancel(_ context.Context, booking string) error {
	if a.busy = !a.busy; a.busy {
		return errors.New("the agency is busy")
	}
	a.cancelled = append(a.cancelled, booking)
	return nil
}

// Without a car the trip is an investigation. Whoever gives it up has the rest cancelled, the last first.
func TestATripIsGivenUp(t *testing.T) {
	t.Parallel()
	w := worker.New(nil, worker.Options{})
	var a agency
	saga.Register(w, &a)
	wf := taskertest.New(t, taskertest.Options{Templates: []string{"template.yaml"}, Worker: w})
	task := wf.Start(nil)
	wf.RunUntilIdle()
	task.AssertState(tasker.TaskError)
	task.Investigation()
	task.Compensate()
	wf.Advance(time.Hour)
	task.AssertState(tasker.TaskCancelled)
	if got := task.Get(); got.Outcome != tasker.Compensated {
		t.Errorf("the outcome is %q", got.Outcome)
	}
	task.Step("undo:hotel").AssertState(tasker.StepComplete)
	if want := []string{"booked hotel", "booked flight"}; !slices.Equal(a.cancelled, want) {
		t.Errorf("cancelled are %q, want %q", a.cancelled, want)
	}
}

// What cannot be cancelled is an investigation; nothing before it is cancelled until it is repaired.
func TestACancellationThatFailsIsAnInvestigation(t *testing.T) {
	t.Parallel()
	w := worker.New(nil, worker.Options{})
	var a agency
	saga.Register(w, &a)
	wf := taskertest.New(t, taskertest.Options{Templates: []string{"template.yaml"}, Worker: w})
	wf.Script("undo:hotel", taskertest.FailPermanently("no refund"))
	task := wf.Start(nil)
	wf.RunUntilIdle()
	task.Compensate()
	wf.RunUntilIdle()
	task.AssertState(tasker.TaskError)
	task.Step("undo:flight").AssertState(tasker.StepPending)
	task.Resolve("undo:hotel")
	wf.Advance(time.Hour)
	task.AssertState(tasker.TaskCancelled)
}
