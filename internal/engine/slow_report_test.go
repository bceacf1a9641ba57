package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest/fixture"
	"tasker.example/tasker/internal/postgres"
)

// slow makes every change of the task's steps take too long that the condition on NEW describes.
func (h *harness) slow(task tasker.ID, condition string) {
	h.Helper()
	impatient, err := postgres.Open(h.Context(), h.Admin().Config().ConnString(), postgres.Options{StatementTimeout: time.Second})
	h.Must(err)
	h.Cleanup(impatient.Close)
	h.Engine = newEngine(impatient, engine.Options{})
	fixture.Slow(h, h.Admin(), time.Minute, "UPDATE ON tasker.workflow_steps", fmt.Sprintf("NEW.task_uuid = '%s' AND %s", task, condition))
}

func TestSlowOutcomeIsDeferredAndBlocksNoOther(t *testing.T) {
	h := newHarness(t)
	h.Template("one", enginetest.Step("one"))
	slow, sound := h.Create("one"), h.Create("one")
	var outcomes []tasker.Outcome
	for _, a := range h.Claim() {
		outcomes = append(outcomes, success(a, `1`))
	}
	h.slow(slow, "NEW.state = 'complete'")
	h.Accepted(outcomes...)
	h.WantState(sound, tasker.TaskComplete)
	h.WantStep(slow, "one", tasker.StepEnqueuedForOrchestration, 1)
	h.heal()
	fixture.DeferredReportsDue(h, h.Admin())
	h.Tick()
	h.WantState(slow, tasker.TaskComplete)
}

func TestOutcomeThatCannotBeDeferredIsUnavailable(t *testing.T) {
	h := newHarness(t)
	h.Template("one", enginetest.Step("one"))
	slow, sound := h.Create("one"), h.Create("one")
	var outcomes []tasker.Outcome
	for _, a := range h.Claim() {
		outcomes = append(outcomes, success(a, `1`))
	}
	h.slow(slow, "true")
	r := h.Report(outcomes...)
	want := h.Step(sound, "one").UUID
	if !slices.Equal(r.Accepted, []tasker.ID{want}) || len(r.Rejected) != 1 || r.Rejected[0].Code != tasker.Unavailable {
		t.Errorf("accepted %v, rejected %v; want %s accepted, and the other asked for again", r.Accepted, r.Rejected, want)
	}
	h.WantState(sound, tasker.TaskComplete)
	h.heal()
	h.Accepted(outcomes...)
	h.WantState(slow, tasker.TaskComplete)
}
