package engine_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/pgtest/fixture"
)

// due makes it so that the rests of failed steps are over, and does nothing more.
func (h *harness) due() {
	h.Helper()
	fixture.RetriesDue(h, h.Admin())
}

// readiness is what a step says of whether it can run.
type readiness struct{ Dependencies, Retry, Ready bool }

func (h *harness) wantReadiness(task tasker.ID, name string, want readiness) {
	h.Helper()
	s := h.Step(task, name)
	diff := cmp.Diff(want, readiness{s.DependenciesSatisfied, s.RetryEligible, s.ReadyForExecution})
	check(h, diff == "", "step %s (%s): %s", name, s.State, diff)
}

func TestReadinessShowsWhatTheNextTickDoes(t *testing.T) {
	h := newHarness(t)
	h.Template("chain", attempts(2, enginetest.Step("one")), enginetest.Step("two", "one"))
	task := h.Create("chain")
	h.wantReadiness(task, "one", readiness{Dependencies: true}) // enqueued already
	h.wantReadiness(task, "two", readiness{})
	h.Accepted(failure(h.ClaimOne("one"), true))
	h.wantReadiness(task, "one", readiness{Dependencies: true}) // rests
	h.due()
	h.wantReadiness(task, "one", readiness{Dependencies: true, Retry: true, Ready: true})
	h.wantReadiness(task, "two", readiness{})
	h.WantStep(task, "one", tasker.StepError, 1)
	h.Tick()
	h.wantReadiness(task, "one", readiness{Dependencies: true})
	h.WantStep(task, "one", tasker.StepEnqueued, 2)
	h.Accepted(failure(h.ClaimOne("one"), true))
	h.wantReadiness(task, "one", readiness{Dependencies: true}) // no attempt is left
}

func TestStalledTaskIsNotReady(t *testing.T) {
	h := newHarness(t)
	h.Template("single", attempts(2, enginetest.Step("one")))
	c, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "single", StartAt: time.Now().Add(time.Hour)}})
	h.Must(err)
	h.wantReadiness(c[0].TaskUUID, "one", readiness{Dependencies: true})

	task := h.Create("single")
	h.Accepted(failure(h.ClaimOne("one"), true))
	fixture.StaleTasks(h, h.Admin(), 2*time.Hour)
	h.Exec(`SELECT tasker.detect_and_transition_stale_tasks(false, 10)`)
	h.due()
	h.wantReadiness(task, "one", readiness{Dependencies: true})
	h.Tick()
	h.WantStep(task, "one", tasker.StepError, 1)
}

func TestResetEndsTheWaitForARetry(t *testing.T) {
	h := newHarness(t)
	h.Template("single", attempts(2, enginetest.Step("one")))
	task := h.Create("single")
	o := failure(h.ClaimOne("one"), true)
	o.Failure.RetryAfter = time.Hour
	h.Accepted(o)
	h.WantState(task, tasker.TaskWaitingForRetry)
	before := h.Step(task, "one")
	require(t, before.NextRetryAt != nil, "the step does not wait for a retry")
	left, err := h.Engine.OperateStep(t.Context(), task, before.UUID, operation(tasker.ResetForRetry))
	h.Must(err)
	if left.State != tasker.StepPending || left.Attempts != 0 || left.NextRetryAt != nil || left.RetryEligible || !left.ReadyForExecution {
		t.Errorf("the action left the step %s after %d attempts, retry at %v, eligible %v, ready %v",
			left.State, left.Attempts, left.NextRetryAt, left.RetryEligible, left.ReadyForExecution)
	}
	h.WantState(task, tasker.TaskStepsInProcess)
	h.WantStep(task, "one", tasker.StepEnqueued, 1)
	if s := h.Step(task, "one"); s.NextRetryAt != nil {
		t.Errorf("the step that is enqueued would be retried at %v", s.NextRetryAt)
	}
	list, _, err := h.DB.StepTransitions(t.Context(), task, before.UUID, 100, 0)
	h.Must(err)
	var moves []string
	for _, x := range list[len(list)-2:] {
		moves = append(moves, x.From+" "+x.Event+" "+x.To)
	}
	if diff := cmp.Diff([]string{"error reset_for_retry pending", "pending enqueue enqueued"}, moves); diff != "" {
		t.Error(diff)
	}

	// Both attempts are there again.
	if a := h.ClaimOne("one"); a.Attempt != 1 || a.MaxAttempts != 2 {
		t.Errorf("attempt %d of %d", a.Attempt, a.MaxAttempts)
	} else {
		h.Accepted(failure(a, true))
	}
	h.WantState(task, tasker.TaskWaitingForRetry)
	h.pass()
	h.Accepted(failure(h.ClaimOne("one"), true))
	h.WantState(task, tasker.TaskError)
	h.WantStep(task, "one", tasker.StepError, 2)
}

func TestMetadataOfAManualResultIsStored(t *testing.T) {
	h := newHarness(t)
	task := h.broken()
	op := operation(tasker.CompleteManually)
	op.Metadata = json.RawMessage(`{"ticket": "OPS-1", "seen": {"by": ["ann"]}}`)
	left := h.Operate(task, "two", op)
	for name, doc := range map[string]json.RawMessage{"the answer": left.Results, "the step": h.Step(task, "two").Results} {
		var got map[string]any
		h.Must(json.Unmarshal(doc, &got))
		want := map[string]any{
			"success": true, "result": map[string]any{"payment": 42.0},
			"metadata": map[string]any{"ticket": "OPS-1", "seen": map[string]any{"by": []any{"ann"}}},
		}
		diff := cmp.Diff(want, got)
		check(t, diff == "", "%s: %s", name, diff)
	}
	equal(t, "result for step three", string(h.ClaimOne("three").DependencyResults["two"]), `{"payment": 42}`)
}

func TestDueRetryIsFoundBehindTasksInError(t *testing.T) {
	h := newHarness(t)
	now := time.Now()
	h.Engine = newEngine(h.DB, engine.Options{Now: func() time.Time {
		now = now.Add(time.Second) // each look takes as long
		return now
	}})
	h.Engine.SetBatch(2)
	h.Template("single", attempts(2, enginetest.Step("one")))
	stuck := make([]tasker.ID, 5)
	for i := range stuck {
		stuck[i] = h.Create("single")
		h.Accepted(failure(h.ClaimOne("one"), true))
	}
	h.Exec(`UPDATE tasker.workflow_steps SET next_retry_at = now() - interval '1 hour'`)
	fixture.StaleTasks(h, h.Admin(), 2*time.Hour)
	h.Exec(`SELECT tasker.detect_and_transition_stale_tasks(false, 10)`)
	task := h.Create("single")
	h.Accepted(failure(h.ClaimOne("one"), true))
	h.Exec(`UPDATE tasker.workflow_steps SET next_retry_at = now() - interval '1 minute' WHERE task_uuid = $1`, task)
	loops := h.Engine.Loops()
	retry := loops[slices.IndexFunc(loops, func(l *loop.Loop) bool { return l.Name == "retry steps" })]
	round := func() (passes int) {
		t.Helper()
		for next := loop.AtOnce; next == loop.AtOnce && passes < 100; passes++ {
			var err error
			next, err = retry.Pass(t.Context())
			h.Must(err)
		}
		return passes
	}
	if n, s := round(), h.Step(task, "one").State; n != 4 || s != tasker.StepEnqueued { // the last one finds the end
		t.Errorf("after %d passes of two the sixth step is %s, want enqueued after 4", n, s)
	}
	equal(t, "passes of the next round at once", round(), 1)
	now = now.Add(time.Minute)
	equal(t, "passes of the next round", round(), 3)
	for _, id := range stuck {
		equal(t, "a step of a task in error is", h.Step(id, "one").State, tasker.StepError)
	}
}
