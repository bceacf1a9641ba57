package engine_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/postgres"
)

func TestFailuresAreRetriedUntilNoneIsLeft(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("two", attempts(2, enginetest.Step("one")), enginetest.Step("two", "one"))
	task := h.Create("two")
	h.accepted(failure(h.claimOne("one"), true))
	h.wantState(task, tasker.TaskWaitingForRetry)
	h.wantStep(task, "one", tasker.StepError, 1)
	if s := h.step(task, "one"); s.NextRetryAt == nil || s.NextRetryAt.Sub(*s.LastFailureAt) != time.Second || s.RetryEligible {
		t.Errorf("retry at %v after failure at %v, eligible %v", s.NextRetryAt, s.LastFailureAt, s.RetryEligible)
	}
	h.tick()
	h.wantState(task, tasker.TaskWaitingForRetry) // its rest is not over
	h.pass()
	h.wantState(task, tasker.TaskStepsInProcess)
	h.wantStep(task, "one", tasker.StepEnqueued, 2)
	h.accepted(failure(h.claimOne("one"), true))
	h.wantState(task, tasker.TaskError)

	want := "pending initializing enqueuing_steps steps_in_process evaluating_results waiting_for_retry " +
		"enqueuing_steps steps_in_process evaluating_results blocked_by_failures error"
	if got := h.history(task); got != want {
		t.Errorf("history %s\nwant    %s", got, want)
	}
	e := h.Entry(task)
	if e.Reason != tasker.MaxRetriesExceeded || e.DetailCode != "retries_exhausted" || e.DetectedBy != "inline" ||
		e.OriginalState != tasker.TaskStepsInProcess || e.ResolutionStatus != tasker.EntryPending || *e.StepUUID != h.step(task, "one").UUID {
		t.Errorf("entry %+v", e)
	}
	d := h.taskOf(task)
	if !d.DeadLetter.DeadLettered || d.DeadLetter.Reason != "max_retries_exceeded" || *d.DeadLetter.EntryUUID != e.UUID {
		t.Errorf("mark of the task %+v", d.DeadLetter)
	}
	h.pass()
	h.wantState(task, tasker.TaskError)
}

// The snapshot is all an investigator has if the rest is gone.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("two", attempts(2, enginetest.Step("one")), enginetest.Step("two", "one"))
	task := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "two", Context: json.RawMessage(`{"order": 7}`), Initiator: "cron"})
	h.accepted(failure(h.claimOne("one"), true))
	h.pass()
	h.accepted(failure(h.claimOne("one"), true))
	var s struct {
		CurrentState  string  `json:"current_state"`
		OriginalState string  `json:"original_state"`
		Threshold     float64 `json:"threshold_minutes"`
		Task          struct {
			Context   map[string]int
			Initiator string
		}
		Template tasker.Template
		Steps    []struct {
			Name, State string
			Attempts    int
			Error       tasker.StepFailure
			Failures    []struct {
				Attempt int
				Error   tasker.StepFailure
			}
		}
		Edges       []struct{ From, To string }
		Transitions []struct {
			To string `json:"to_state"`
		}
	}
	h.Must(json.Unmarshal(h.Entry(task).Snapshot, &s))
	if s.CurrentState != "error" || s.OriginalState != "steps_in_process" || s.Threshold != 30 {
		t.Errorf("states %s %s, threshold %v", s.CurrentState, s.OriginalState, s.Threshold)
	}
	if s.Task.Context["order"] != 7 || s.Task.Initiator != "cron" || s.Template.Name != "two" || len(s.Edges) != 1 {
		t.Errorf("task %+v, template %s, edges %v", s.Task, s.Template.Name, s.Edges)
	}
	one := s.Steps[0]
	if one.Name != "one" || one.State != "error" || one.Attempts != 2 || one.Error.Message != "no luck" || one.Error.Attempt != 2 {
		t.Errorf("step %+v", one)
	}
	if len(one.Failures) != 2 || one.Failures[0].Attempt != 1 || one.Failures[0].Error.Type != "luck" {
		t.Errorf("failures %+v", one.Failures)
	}
	moves := "pending"
	for _, m := range s.Transitions {
		moves += " " + m.To
	}
	if want := h.history(task); moves != want {
		t.Errorf("the task moved %s, want %s", moves, want)
	}
}

func TestPermanentFailureIsNotRetried(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	task := h.Create("single")
	h.accepted(failure(h.claimOne("one"), false))
	h.wantState(task, tasker.TaskError)
	if e := h.Entry(task); e.DetailCode != "permanent_failure" {
		t.Errorf("detail code %s", e.DetailCode)
	}
}

func TestARetryAfterTheLimitWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("single", attempts(3, enginetest.Step("one")))
	for _, after := range []time.Duration{24 * time.Hour, 24*time.Hour + time.Millisecond, 5_000_000_000 * time.Millisecond, math.MaxInt64} {
		task := h.Create("single")
		o := failure(h.claimOne("one"), true)
		o.Failure.RetryAfter = after
		h.accepted(o)
		if after <= 24*time.Hour {
			h.wantState(task, tasker.TaskWaitingForRetry)
			continue
		}
		h.wantState(task, tasker.TaskError)
		if e := h.Entry(task); e.DetailCode != tasker.PermanentFailure || !strings.Contains(string(e.Snapshot), "is longer than the limit of 24h0m0s") {
			t.Errorf("after %s: detail code %s, evidence %s", after, e.DetailCode, e.Snapshot)
		}
	}
}

// An attempt counts when the step is enqueued: with its task, after its dependencies,
// for a retry, and by a person, who gives all attempts anew.
func TestAnAttemptCountsHoweverAStepIsEnqueued(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("chain", enginetest.Step("one"), attempts(2, enginetest.Step("two", "one")))
	task := h.Create("chain")
	h.wantStep(task, "one", tasker.StepEnqueued, 1)
	h.wantStep(task, "two", tasker.StepPending, 0)
	h.accepted(success(h.claimOne("one"), `1`))
	h.wantStep(task, "two", tasker.StepEnqueued, 1)
	h.accepted(failure(h.claimOne("two"), true))
	h.pass()
	h.wantStep(task, "two", tasker.StepEnqueued, 2)
	h.accepted(failure(h.claimOne("two"), true))
	h.wantState(task, tasker.TaskError)
	_, err := h.Engine.OperateStep(t.Context(), task, h.step(task, "two").UUID, operation(tasker.ResetForRetry))
	h.Must(err)
	h.wantStep(task, "two", tasker.StepEnqueued, 1)
}

func TestAStepThatMayNotBeRetried(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	s := enginetest.Step("one")
	s.Retry.Retryable = false
	h.Template("single", s)
	task := h.Create("single")
	h.accepted(failure(h.claimOne("one"), true))
	h.wantStep(task, "one", tasker.StepError, 1)
	h.wantState(task, tasker.TaskError)
}

func TestRetryAfterIsTheLeastRest(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	task := h.Create("single")
	o := failure(h.claimOne("one"), true)
	o.Failure.RetryAfter = time.Hour
	h.accepted(o)
	s := h.step(task, "one")
	if got := s.NextRetryAt.Sub(*s.LastFailureAt); got != time.Hour {
		t.Errorf("rests %v, want an hour", got)
	}
}

func TestTheOtherBranchRunsOnAndTheInvestigationIsOpenAtOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("fork", attempts(1, enginetest.Step("bad")), enginetest.Step("good"), enginetest.Step("more", "good"), enginetest.Step("join", "bad", "more"))
	task := h.Create("fork")
	list := h.claim()
	if list[0].Name != "bad" {
		list[0], list[1] = list[1], list[0]
	}
	h.accepted(failure(list[0], true))
	h.wantState(task, tasker.TaskStepsInProcess)
	if e := h.Entry(task); e.OriginalState != tasker.TaskStepsInProcess || e.CurrentTaskState != tasker.TaskStepsInProcess {
		t.Errorf("entry from %s, now %s", e.OriginalState, e.CurrentTaskState)
	}
	h.accepted(success(list[1], `1`))
	h.wantState(task, tasker.TaskStepsInProcess)
	h.accepted(success(h.claimOne("more"), `1`))
	h.wantState(task, tasker.TaskError)
	if got := h.history(task); !strings.HasSuffix(got, "evaluating_results blocked_by_failures error") {
		t.Errorf("history %s", got)
	}
}

func TestTwoStepsFailingOpenOneInvestigation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("pair", attempts(1, enginetest.Step("a")), attempts(1, enginetest.Step("b")))
	task := h.Create("pair")
	list := h.claim()
	h.accepted(failure(list[0], true), failure(list[1], true))
	h.wantState(task, tasker.TaskError)
	all, err := h.DB.Entries(t.Context(), tasker.EntryFilter{Limit: 10})
	h.Must(err)
	if len(all) != 1 {
		t.Fatalf("%d investigations, want 1", len(all))
	}
	e, err := h.DB.Entry(t.Context(), all[0].UUID)
	h.Must(err)
	if len(e.History) != 2 || e.History[1].Event != "step_failed" {
		t.Errorf("the second failure is not in the history: %+v", e.History)
	}
}

func TestALostWorkerCostsAnAttempt(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("single", attempts(2, enginetest.Step("one")))
	task := h.Create("single")
	lost := h.claimOne("one")
	h.pass()
	h.wantStep(task, "one", tasker.StepError, 1)
	s := h.step(task, "one")
	var f tasker.StepFailure
	h.Must(json.Unmarshal(s.Error, &f))
	if f.Type != tasker.WorkerLost || f.WorkerUUID != h.worker.String() || f.Attempt != 1 {
		t.Fatalf("failure %+v", f)
	}
	// What the lost worker says now changes nothing, and is kept for the audit.
	r := h.report(success(lost, `1`))
	if len(r.Accepted) != 0 || len(r.Rejected) != 1 || r.Rejected[0].Code != tasker.StaleLease {
		t.Fatalf("receipt %+v", r)
	}
	var kept int
	h.Must(h.pool.QueryRow(t.Context(), `SELECT count(*) FROM tasker.rejected_reports WHERE step_uuid = $1`, s.UUID).Scan(&kept))
	if kept != 1 {
		t.Errorf("%d rejected reports, want 1", kept)
	}
	h.wantStep(task, "one", tasker.StepError, 1)

	h.pass()
	h.claimOne("one")
	h.pass()
	h.wantState(task, tasker.TaskError)
	if e := h.Entry(task); e.DetailCode != tasker.WorkerLost {
		t.Errorf("detail code %s", e.DetailCode)
	}
}

func TestALateResultBeforeTheReaperCounts(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	task := h.Create("single")
	a := h.claimOne("one")
	h.Exec(`UPDATE tasker.workflow_steps SET lease_expires_at = clock_timestamp() - interval '1 minute'`)
	h.accepted(success(a, `1`))
	h.tick()
	h.wantState(task, tasker.TaskComplete)
}

func TestAnAttemptThatRunsTooLong(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	s := attempts(1, enginetest.Step("one"))
	s.TimeoutSeconds = 3
	h.Template("single", s)
	task := h.Create("single")
	a := h.claimOne("one")
	if a.Deadline == nil || a.LeaseExpiresAt.After(*a.Deadline) {
		t.Fatalf("deadline %v, lease until %v", a.Deadline, a.LeaseExpiresAt)
	}
	// Signs of life do not move the deadline.
	beat, err := h.Engine.Heartbeat(t.Context(), h.worker, []tasker.Lease{a.Lease()})
	h.Must(err)
	if len(beat.Extended) != 1 || beat.Extended[0].ExpiresAt.After(*a.Deadline) {
		t.Fatalf("beat %+v", beat)
	}
	h.Exec(`UPDATE tasker.workflow_steps SET timeout_at = clock_timestamp(), lease_expires_at = clock_timestamp()`)
	h.tick()
	h.wantState(task, tasker.TaskError)
	if e := h.Entry(task); e.DetailCode != tasker.StepTimeout {
		t.Errorf("detail code %s", e.DetailCode)
	}
}

func TestHeartbeatSaysWhatIsLost(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("pair", enginetest.Step("a"), enginetest.Step("b"))
	h.Create("pair")
	list := h.claim()
	stolen := list[1].Lease()
	stolen.Fence--
	beat, err := h.Engine.Heartbeat(t.Context(), h.worker, []tasker.Lease{list[0].Lease(), stolen})
	h.Must(err)
	if len(beat.Extended) != 1 || len(beat.Lost) != 1 || beat.Lost[0] != stolen.StepUUID {
		t.Errorf("beat %+v", beat)
	}
	_, err = h.Engine.Heartbeat(t.Context(), tasker.NewID(), nil)
	h.WantCode(err, tasker.NotFound, "register again")
}

func TestReleaseUsesNoAttempt(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	task := h.Create("single")
	a := h.claimOne("one")
	released, lost, err := h.Engine.Release(t.Context(), h.worker, []tasker.Lease{a.Lease(), {TaskUUID: task, StepUUID: tasker.NewID()}})
	h.Must(err)
	if len(released) != 1 || len(lost) != 1 {
		t.Errorf("released %v, lost %v", released, lost)
	}
	h.wantStep(task, "one", tasker.StepEnqueued, 1)
	again := h.claimOne("one")
	if again.Fence <= a.Fence || again.Attempt != 1 {
		t.Errorf("fence %d after %d, attempt %d", again.Fence, a.Fence, again.Attempt)
	}
	if r := h.report(success(a, `1`)); len(r.Rejected) != 1 {
		t.Errorf("the lease that was given back still counts: %+v", r)
	}
	h.accepted(success(again, `2`))
}

func TestTheSameReportAgainIsAcceptedAndNotAppliedTwice(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("chain", attempts(1, enginetest.Step("one")), enginetest.Step("two", "one"))
	task := h.Create("chain")
	a := h.claimOne("one")
	h.accepted(success(a, `1`))
	before := h.step(task, "one")
	h.accepted(success(a, `1`))
	r := h.report(success(a, `1`), success(a, `2`), failure(a, true))
	if len(r.Accepted) != 1 || len(r.Rejected) != 2 || r.Rejected[0].Code != tasker.StaleLease {
		t.Errorf("receipt %+v", r)
	}
	if after := h.step(task, "one"); string(after.Results) != string(before.Results) || after.UpdatedAt != before.UpdatedAt {
		t.Error("the step has changed")
	}
	h.drain()
	failing := h.Create("chain")
	a = h.claimOne("one")
	h.accepted(failure(a, false))
	h.accepted(failure(a, false))
	h.wantState(failing, tasker.TaskError)
}

func TestReportsThatCannotCount(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	task := h.Create("single")
	a := h.claimOne("one")
	other := h.RegisterWorker("run")
	r, err := h.Engine.Report(t.Context(), other, []tasker.Outcome{success(a, `1`)}, 0)
	h.Must(err)
	if len(r.Rejected) != 1 || !strings.Contains(r.Rejected[0].Message, "another worker") {
		t.Errorf("receipt %+v", r)
	}
	unknown := success(a, `1`)
	unknown.StepUUID = tasker.NewID()
	bad := tasker.Outcome{Lease: a.Lease()} // a failure without an error
	if r = h.report(unknown, bad); len(r.Rejected) != 2 || len(r.Accepted) != 0 {
		t.Errorf("receipt %+v", r)
	}
	for _, x := range r.Rejected {
		if want := map[tasker.ID]tasker.Code{unknown.StepUUID: tasker.NotFound, a.StepUUID: tasker.Invalid}[x.StepUUID]; x.Code != want {
			t.Errorf("rejected with %s, want %s", x.Code, want)
		}
	}
	h.wantStep(task, "one", tasker.StepInProgress, 1)
	h.accepted(success(a, `1`))
	_, err = h.Engine.Report(t.Context(), tasker.NewID(), []tasker.Outcome{success(a, `1`)}, 0)
	h.WantCode(err, tasker.NotFound)
}

func TestAFailureIsTakenWhateverItLooksLike(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	task := h.Create("single")
	o := failure(h.claimOne("one"), true)
	o.Failure.Message = "sound\a nul\x00 broken\xff " + strings.Repeat("x", 20_000)
	o.Failure.Type = ""
	o.Failure.Context = json.RawMessage(`{"a": "\u0000"}`)
	h.accepted(o)
	var f tasker.StepFailure
	h.Must(json.Unmarshal(h.step(task, "one").Error, &f))
	if !strings.HasPrefix(f.Message, "sound nul broken") || len(f.Message) > 8<<10 || f.Type != "error" || !strings.Contains(string(f.Context), "dropped") {
		t.Errorf("failure %.60s… (%d bytes), type %s, context %s", f.Message, len(f.Message), f.Type, f.Context)
	}
}

// A trigger stands in for whatever can break the follow-up of a result.
func TestAResultWhoseFollowUpFailsIsKeptAndTriedAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("chain", enginetest.Step("one"), enginetest.Step("two", "one"))
	task := h.Create("chain")
	a := h.claimOne("one")
	h.fails("UPDATE ON tasker.workflow_steps FOR EACH ROW WHEN (NEW.state = 'complete')")
	h.accepted(success(a, `{"n": 1}`))
	h.wantStep(task, "one", tasker.StepEnqueuedForOrchestration, 1)
	h.wantState(task, tasker.TaskStepsInProcess)
	h.Exec(`DROP TRIGGER broken ON tasker.workflow_steps`)
	h.Exec(`UPDATE tasker.workflow_steps SET state_since = state_since - interval '1 minute' WHERE state = 'enqueued_for_orchestration'`)
	h.tick()
	if got := string(h.claimOne("two").DependencyResults["one"]); got != `{"n": 1}` {
		t.Errorf("two receives %s", got)
	}
	h.wantStep(task, "one", tasker.StepComplete, 1)
}

// A failure whose report was kept is told as what it is.
func TestAKeptFailureIsToldAsAFailure(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	var told []engine.Attempt
	h.DB = enginetest.Open(h, h.URL, postgres.Options{ReportQueues: true})
	h.Engine = newEngine(h.DB, engine.Options{OnAttemptsEnded: func(list []engine.Attempt) { told = append(told, list...) }})
	h.Template("only", enginetest.Step("one"))
	h.Create("only")
	a := h.claimOne("one")
	h.fails("UPDATE ON tasker.workflow_steps FOR EACH ROW WHEN (NEW.state = 'error')")
	o := failure(a, true)
	o.Failure.Fingerprint = "gateway"
	h.report(o)
	h.Exec(`DROP TRIGGER broken ON tasker.workflow_steps`)
	if len(told) > 0 {
		t.Fatalf("told before it counts: %+v", told)
	}
	h.Exec(`UPDATE tasker.workflow_steps SET state_since = state_since - interval '1 minute' WHERE state = 'enqueued_for_orchestration'`)
	h.tick()
	if len(told) != 1 || told[0].Failure == nil || told[0].Failure.Type != "luck" || told[0].Failure.Message != "no luck" || told[0].Failure.Fingerprint != "gateway" {
		t.Errorf("told %+v", told)
	}
}
