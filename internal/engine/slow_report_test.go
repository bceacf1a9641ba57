package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/postgres"
)

// slow makes every change of the task's steps take too long that the condition on NEW
// describes.
func (h *harness) slow(task tasker.ID, condition string) {
	h.Helper()
	impatient, err := postgres.Open(h.Context(), h.pool.Config().ConnString(), postgres.Options{StatementTimeout: 2 * time.Second})
	h.Must(err)
	h.Cleanup(impatient.Close)
	h.Engine = newEngine(impatient, engine.Options{})
	h.Exec(`CREATE FUNCTION public.dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$`)
	h.Exec(fmt.Sprintf(`CREATE TRIGGER slow BEFORE UPDATE ON tasker.workflow_steps FOR EACH ROW WHEN (NEW.task_uuid = '%s' AND %s) EXECUTE FUNCTION public.dawdle()`,
		task, condition))
}

// One outcome whose follow-up always takes too long is kept, and the others are taken.
func TestAnOutcomeThatTakesTooLongHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("one", enginetest.Step("one"))
	slow, sound := h.Create("one"), h.Create("one")
	var outcomes []tasker.Outcome
	for _, a := range h.claim() {
		outcomes = append(outcomes, success(a, `1`))
	}
	h.slow(slow, "NEW.state = 'complete'")
	h.accepted(outcomes...)
	h.wantState(sound, tasker.TaskComplete)
	h.wantStep(slow, "one", tasker.StepEnqueuedForOrchestration, 1)
	h.Exec(`DROP TRIGGER slow ON tasker.workflow_steps`)
	h.Exec(`UPDATE tasker.workflow_steps SET state_since = state_since - interval '1 minute' WHERE state = 'enqueued_for_orchestration'`)
	h.tick()
	h.wantState(slow, tasker.TaskComplete)
}

// One that cannot even be kept is answered as not decided, and the others are taken.
func TestAnOutcomeThatCannotBeKeptIsAskedForAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("one", enginetest.Step("one"))
	slow, sound := h.Create("one"), h.Create("one")
	var outcomes []tasker.Outcome
	for _, a := range h.claim() {
		outcomes = append(outcomes, success(a, `1`))
	}
	h.slow(slow, "true")
	r := h.report(outcomes...)
	want := h.step(sound, "one").UUID
	if !slices.Equal(r.Accepted, []tasker.ID{want}) || len(r.Rejected) != 1 || r.Rejected[0].Code != tasker.Unavailable {
		t.Errorf("accepted %v, rejected %v; want %s accepted, and the other asked for again", r.Accepted, r.Rejected, want)
	}
	h.wantState(sound, tasker.TaskComplete)
	h.Exec(`DROP TRIGGER slow ON tasker.workflow_steps`)
	h.accepted(outcomes...)
	h.wantState(slow, tasker.TaskComplete)
}
