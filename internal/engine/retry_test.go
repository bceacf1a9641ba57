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
)

// due makes it so that the rests of failed steps are over, and does nothing more.
func (h *harness) due() {
	h.Helper()
	h.Exec(`UPDATE tasker.workflow_steps SET next_retry_at = now() WHERE next_retry_at IS NOT NULL`)
}

// readiness is what a step says of whether it can run.
type readiness struct{ Dependencies, Retry, Ready bool }

func (h *harness) wantReadiness(task tasker.ID, name string, want readiness) {
	h.Helper()
	s := h.step(task, name)
	if diff := cmp.Diff(want, readiness{s.DependenciesSatisfied, s.RetryEligible, s.ReadyForExecution}); diff != "" {
		h.Errorf("step %s (%s): %s", name, s.State, diff)
	}
}

// The flags say what the next tick will do, before it has done it.
func TestReadinessOfAStepWhoseRetryIsDue(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("chain", attempts(2, enginetest.Step("one")), enginetest.Step("two", "one"))
	task := h.Create("chain")
	h.wantReadiness(task, "one", readiness{Dependencies: true}) // enqueued already
	h.wantReadiness(task, "two", readiness{})
	h.accepted(failure(h.claimOne("one"), true))
	h.wantReadiness(task, "one", readiness{Dependencies: true}) // rests
	h.due()
	h.wantReadiness(task, "one", readiness{Dependencies: true, Retry: true, Ready: true})
	h.wantReadiness(task, "two", readiness{})
	h.wantStep(task, "one", tasker.StepError, 1)
	h.tick()
	h.wantReadiness(task, "one", readiness{Dependencies: true})
	h.wantStep(task, "one", tasker.StepEnqueued, 2)
	h.accepted(failure(h.claimOne("one"), true))
	h.wantReadiness(task, "one", readiness{Dependencies: true}) // no attempt is left
}

// What is dead-lettered is not retried by itself, and what has not started does
// not begin: the flags do not promise it.
func TestReadinessOfATaskThatGoesNowhere(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("single", attempts(2, enginetest.Step("one")))
	c, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "single", StartAt: time.Now().Add(time.Hour)}})
	h.Must(err)
	h.wantReadiness(c[0].TaskUUID, "one", readiness{Dependencies: true})

	task := h.Create("single")
	h.accepted(failure(h.claimOne("one"), true))
	h.Exec(`UPDATE tasker.tasks SET state_since = state_since - interval '2 hours', warn_at = warn_at - interval '2 hours',
		stale_at = stale_at - interval '2 hours' WHERE task_uuid = $1`, task)
	h.Exec(`SELECT tasker.detect_and_transition_stale_tasks(false, 10)`)
	h.due()
	h.wantReadiness(task, "one", readiness{Dependencies: true})
	h.tick()
	h.wantStep(task, "one", tasker.StepError, 1)
}

// An operator need not wait for the rest of a step to be over, and what was tried
// before does not count any more.
func TestAResetOfAStepThatWaitsForItsRetry(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("single", attempts(2, enginetest.Step("one")))
	task := h.Create("single")
	o := failure(h.claimOne("one"), true)
	o.Failure.RetryAfter = time.Hour
	h.accepted(o)
	h.wantState(task, tasker.TaskWaitingForRetry)
	before := h.step(task, "one")
	if before.NextRetryAt == nil {
		t.Fatal("the step does not wait for a retry")
	}
	left, err := h.Engine.OperateStep(t.Context(), task, before.UUID, operation(tasker.ResetForRetry))
	h.Must(err)
	if left.State != tasker.StepPending || left.Attempts != 0 || left.NextRetryAt != nil || left.RetryEligible || !left.ReadyForExecution {
		t.Errorf("the action left the step %s after %d attempts, retry at %v, eligible %v, ready %v",
			left.State, left.Attempts, left.NextRetryAt, left.RetryEligible, left.ReadyForExecution)
	}
	h.wantState(task, tasker.TaskStepsInProcess)
	h.wantStep(task, "one", tasker.StepEnqueued, 1)
	if s := h.step(task, "one"); s.NextRetryAt != nil {
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
	if a := h.claimOne("one"); a.Attempt != 1 || a.MaxAttempts != 2 {
		t.Errorf("attempt %d of %d", a.Attempt, a.MaxAttempts)
	} else {
		h.accepted(failure(a, true))
	}
	h.wantState(task, tasker.TaskWaitingForRetry)
	h.pass()
	h.accepted(failure(h.claimOne("one"), true))
	h.wantState(task, tasker.TaskError)
	h.wantStep(task, "one", tasker.StepError, 2)
}

// A task need not wait for a retry for one of its steps to be retried.
func TestARetryFallsDueWhileASiblingRuns(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	flaky := attempts(2, enginetest.Step("flaky"))
	flaky.Retry.BaseMS, flaky.Retry.MaxBackoffMS = 600_000, 600_000
	h.Template("pair", flaky, enginetest.Step("slow"))
	task := h.Create("pair")
	held := map[string]tasker.Assignment{}
	for _, a := range h.claim() {
		held[a.Name] = a
	}
	h.accepted(failure(held["flaky"], true))
	h.wantState(task, tasker.TaskStepsInProcess)
	h.tick()
	if list := h.claim(); len(list) != 0 {
		t.Fatalf("claimed %v before their rest was over", names(list))
	}
	h.due()
	h.tick()
	h.wantState(task, tasker.TaskStepsInProcess)
	again := h.claimOne("flaky")
	if again.Attempt != 2 || again.Fence <= held["flaky"].Fence {
		t.Errorf("attempt %d, fence %d after %d", again.Attempt, again.Fence, held["flaky"].Fence)
	}
	h.wantStep(task, "slow", tasker.StepInProgress, 1)
	h.accepted(success(again, `1`), success(held["slow"], `2`))
	h.wantState(task, tasker.TaskComplete)
	want := "pending initializing enqueuing_steps steps_in_process evaluating_results complete"
	if got := h.history(task); got != want {
		t.Errorf("history %s\nwant    %s", got, want)
	}
}

// What an operator says of a result stays beside it. The next step receives the
// result alone, as from a handler.
func TestTheMetadataOfAManualResultIsKept(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.broken()
	op := operation(tasker.CompleteManually)
	op.Metadata = json.RawMessage(`{"ticket": "OPS-1", "seen": {"by": ["ann"]}}`)
	left, err := h.Engine.OperateStep(t.Context(), task, h.step(task, "two").UUID, op)
	h.Must(err)
	for name, doc := range map[string]json.RawMessage{"the answer": left.Results, "the step": h.step(task, "two").Results} {
		var got map[string]any
		h.Must(json.Unmarshal(doc, &got))
		want := map[string]any{
			"success": true, "result": map[string]any{"payment": 42.0},
			"metadata": map[string]any{"ticket": "OPS-1", "seen": map[string]any{"by": []any{"ann"}}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if got := string(h.claimOne("three").DependencyResults["two"]); got != `{"payment": 42}` {
		t.Errorf("three receives %s", got)
	}
}

// Of each failure the snapshot has its own words, also of those that were
// retried; and it says when, and how urgent the task was.
func TestTheSnapshotHasEveryFailure(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("single", attempts(3, enginetest.Step("one")))
	task := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Priority: 5})
	h.Exec(`UPDATE tasker.tasks SET created_at = created_at - interval '90 minutes'`)
	o := failure(h.claimOne("one"), true)
	o.Failure.Message = "first"
	h.accepted(o)
	h.pass()
	h.claimOne("one")
	h.pass() // whoever had it has fallen silent
	h.pass()
	o = failure(h.claimOne("one"), true)
	o.Failure.Message = "last"
	h.accepted(o)

	e := h.Entry(task)
	var s struct {
		Namespace  string
		Age        float64 `json:"task_age_minutes"`
		Priority   int
		DetectedAt time.Time `json:"detected_at"`
		DetectedBy string    `json:"detected_by"`
		Steps      []struct {
			Failures []struct {
				Attempt    int
				Event      string
				At         time.Time
				WorkerUUID tasker.ID `json:"worker_uuid"`
				Error      tasker.StepFailure
			}
		}
	}
	h.Must(json.Unmarshal(e.Snapshot, &s))
	if s.Namespace != enginetest.Namespace || s.Age < 90 || s.Age > 95 || s.Priority != 5 || !s.DetectedAt.Equal(e.At) || s.DetectedBy != "inline" {
		t.Errorf("the snapshot of %s, opened at %s, says %+v", task, e.At, s)
	}
	type failed struct {
		Attempt     int
		Event, Type string
		Message     string
	}
	var got []failed
	last := time.Time{}
	for _, f := range s.Steps[0].Failures {
		got = append(got, failed{f.Attempt, f.Event, f.Error.Type, f.Error.Message})
		if f.WorkerUUID != h.worker || f.Error.Attempt != f.Attempt || !f.At.After(last) {
			t.Errorf("failure %+v", f)
		}
		last = f.At
	}
	want := []failed{
		{1, "fail", "luck", "first"},
		{2, "lose", tasker.WorkerLost, "the worker stopped responding: its lease expired before it reported"},
		{3, "fail", "luck", "last"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What is due since a while is gone through without a rest, however many steps of tasks in error
// stand before it; after that, passes look for what comes lately, until the next round may begin.
func TestALateRetryDoesNotWaitBehindTasksInError(t *testing.T) {
	t.Parallel()
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
		h.accepted(failure(h.claimOne("one"), true))
	}
	h.Exec(`UPDATE tasker.workflow_steps SET next_retry_at = now() - interval '1 hour'`)
	h.Exec(`UPDATE tasker.tasks SET state_since = state_since - interval '2 hours', warn_at = warn_at - interval '2 hours', stale_at = stale_at - interval '2 hours'`)
	h.Exec(`SELECT tasker.detect_and_transition_stale_tasks(false, 10)`)
	task := h.Create("single")
	h.accepted(failure(h.claimOne("one"), true))
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
	if n, s := round(), h.step(task, "one").State; n != 4 || s != tasker.StepEnqueued { // the last one finds the end
		t.Errorf("after %d passes of two the sixth step is %s, want enqueued after 4", n, s)
	}
	if n := round(); n != 1 {
		t.Errorf("the next round of %d passes begins at once", n)
	}
	now = now.Add(time.Minute)
	if n := round(); n != 3 {
		t.Errorf("the next round has %d passes, want 3", n)
	}
	for _, id := range stuck {
		if s := h.step(id, "one").State; s != tasker.StepError {
			t.Errorf("a step of a task in error is %s", s)
		}
	}
}
