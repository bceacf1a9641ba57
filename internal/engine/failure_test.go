package engine_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest/fixture"
	"tasker.example/tasker/internal/postgres"
)

func TestFailuresAreRetriedUntilAttemptsAreExhausted(t *testing.T) {
	h := newHarness(t)
	h.Template("two", attempts(2, enginetest.Step("one")), enginetest.Step("two", "one"))
	task := h.Create("two")
	h.Accepted(failure(h.ClaimOne("one"), true))
	h.WantState(task, tasker.TaskWaitingForRetry)
	h.WantStep(task, "one", tasker.StepError, 1)
	if s := h.Step(task, "one"); s.NextRetryAt == nil || s.NextRetryAt.Sub(*s.LastFailureAt) != time.Second || s.RetryEligible {
		t.Errorf("retry at %v after failure at %v, eligible %v", s.NextRetryAt, s.LastFailureAt, s.RetryEligible)
	}
	h.Tick()
	h.WantState(task, tasker.TaskWaitingForRetry) // its rest is not over
	h.pass()
	h.WantState(task, tasker.TaskStepsInProcess)
	h.WantStep(task, "one", tasker.StepEnqueued, 2)
	h.Accepted(failure(h.ClaimOne("one"), true))
	h.WantState(task, tasker.TaskError)

	want := "pending initializing enqueuing_steps steps_in_process evaluating_results waiting_for_retry " +
		"enqueuing_steps steps_in_process evaluating_results blocked_by_failures error"
	equal(t, "history", h.History(task), want)
	e := h.Entry(task)
	if e.Reason != tasker.MaxRetriesExceeded || e.DetailCode != "retries_exhausted" || e.DetectedBy != "inline" ||
		e.OriginalState != tasker.TaskStepsInProcess || e.ResolutionStatus != tasker.EntryPending || *e.StepUUID != h.Step(task, "one").UUID {
		t.Errorf("entry %+v", e)
	}
	d := h.Task(task)
	if !d.DeadLettered || d.MarkReason != "max_retries_exceeded" || *d.EntryUUID != e.UUID {
		t.Errorf("mark of the task %+v", d.DeadLetter)
	}
	h.pass()
	h.WantState(task, tasker.TaskError)
}

func TestSnapshotContainsTaskStepsAndEveryFailure(t *testing.T) {
	h := newHarness(t)
	h.Template("two", attempts(3, enginetest.Step("one")), enginetest.Step("two", "one"))
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "two", Context: json.RawMessage(`{"order": 7}`), Initiator: "cron", Priority: 5})
	h.Exec(`UPDATE tasker.tasks SET created_at = created_at - interval '90 minutes'`)
	fail := func(message string) {
		o := failure(h.ClaimOne("one"), true)
		o.Failure.Message = message
		h.Accepted(o)
	}
	fail("first")
	h.pass()
	h.ClaimOne("one")
	h.pass() // the worker has fallen silent
	h.pass()
	fail("last")
	var s struct {
		CurrentState  string  `json:"current_state"`
		OriginalState string  `json:"original_state"`
		Threshold     float64 `json:"threshold_minutes"`
		Namespace     string
		Age           float64 `json:"task_age_minutes"`
		Priority      int
		DetectedAt    time.Time `json:"detected_at"`
		DetectedBy    string    `json:"detected_by"`
		Task          struct {
			Context   map[string]int
			Initiator string
		}
		Template tasker.Template
		Steps    []struct {
			Name, State string
			Attempts    int
			Failures    []struct {
				Attempt    int
				Event      string
				At         time.Time
				WorkerUUID tasker.ID `json:"worker_uuid"`
				Error      tasker.StepFailure
			}
		}
		Edges       []struct{ From, To string }
		Transitions []struct {
			To string `json:"to_state"`
		}
	}
	e := h.Entry(task)
	h.Must(json.Unmarshal(e.Snapshot, &s))
	if s.CurrentState != "error" || s.OriginalState != "steps_in_process" || s.Threshold != 30 || s.Namespace != h.Space || s.Age < 90 || s.Age > 95 ||
		s.Priority != 5 || !s.DetectedAt.Equal(e.At) || s.DetectedBy != "inline" {
		t.Errorf("the snapshot of %s, opened at %s, says %+v", task, e.At, s)
	}
	if s.Task.Context["order"] != 7 || s.Task.Initiator != "cron" || s.Template.Name != "two" || len(s.Edges) != 1 {
		t.Errorf("task %+v, template %s, edges %v", s.Task, s.Template.Name, s.Edges)
	}
	moves := "pending"
	for _, m := range s.Transitions {
		moves += " " + m.To
	}
	h.WantHistory(task, moves)
	one := s.Steps[0]
	check(t, one.Name == "one" && one.State == "error" && one.Attempts == 3, "step %+v", one)
	got, last := "", time.Time{}
	for _, f := range one.Failures {
		got += fmt.Sprintln(f.Attempt, f.Event, f.Error.Type, f.Error.Message)
		check(t, f.WorkerUUID == h.Worker && f.Error.Attempt == f.Attempt && f.At.After(last), "failure %+v", f)
		last = f.At
	}
	const want = "1 fail luck first\n2 lose worker_lost the worker stopped responding: its lease expired before it reported\n3 fail luck last\n"
	equal(t, "failures", got, want)
}

func TestWhichFailuresAreRetried(t *testing.T) {
	h := newHarness(t)
	final := enginetest.Step("one")
	final.Retry.Retryable = false
	h.Template("final", final)
	h.Template("retried", attempts(3, enginetest.Step("one")))
	const limit = 24 * time.Hour
	for name, tt := range map[string]struct {
		template    string
		retryable   bool
		after, rest time.Duration
		words       string // of the evidence
	}{
		"a permanent failure":       {"retried", false, 0, 0, "permanent_failure"},
		"a step without retries":    {"final", true, 0, 0, "no luck"},
		"after an hour":             {"retried", true, time.Hour, time.Hour, ""},
		"after the limit":           {"retried", true, limit, limit, ""},
		"after more than the limit": {"retried", true, limit + time.Millisecond, 0, "exceeds the limit of 24h0m0s"},
		"after an absurd time":      {"retried", true, math.MaxInt64, 0, "exceeds the limit of 24h0m0s"},
	} {
		h.each(name, func(h *harness) {
			task := h.Create(tt.template)
			o := failure(h.ClaimOne("one"), tt.retryable)
			o.Failure.RetryAfter = tt.after
			h.Accepted(o)
			s := h.Step(task, "one")
			if tt.rest > 0 {
				h.WantState(task, tasker.TaskWaitingForRetry)
				equal(h, "rest", s.NextRetryAt.Sub(*s.LastFailureAt), tt.rest)
				return
			}
			h.WantState(task, tasker.TaskError)
			if e := h.Entry(task); !strings.Contains(e.DetailCode+string(e.Snapshot), tt.words) {
				h.Errorf("evidence %s %s", e.DetailCode, e.Snapshot)
			}
		})
	}
}

func TestLostLeaseUsesAnAttempt(t *testing.T) {
	h := newHarness(t)
	h.Template("single", attempts(2, enginetest.Step("one")))
	task := h.Create("single")
	lost := h.ClaimOne("one")
	h.pass()
	h.WantStep(task, "one", tasker.StepError, 1)
	s := h.Step(task, "one")
	var f tasker.StepFailure
	h.Must(json.Unmarshal(s.Error, &f))
	require(t, f.Type == tasker.WorkerLost && f.WorkerUUID == h.Worker.String() && f.Attempt == 1, "failure %+v", f)
	// What the lost worker says now changes nothing, and is kept for the audit.
	r := h.Report(success(lost, `1`))
	require(t, len(r.Accepted) == 0 && len(r.Rejected) == 1 && r.Rejected[0].Code == tasker.StaleLease,
		"receipt %+v", r)
	var kept int
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT count(*) FROM tasker.rejected_reports WHERE step_uuid = $1`, s.UUID).Scan(&kept))
	equal(t, "rejected reports", kept, 1)
	h.WantStep(task, "one", tasker.StepError, 1)

	h.pass()
	h.ClaimOne("one")
	h.pass()
	h.WantState(task, tasker.TaskError)
	h.WantDetail(task, tasker.WorkerLost)
}

func TestResultAfterTheLeaseBeforeItsReclaimCounts(t *testing.T) {
	h := newSingle(t)
	task := h.Create("single")
	a := h.ClaimOne("one")
	fixture.LeasesExpired(h, h.Admin())
	h.Accepted(success(a, `1`))
	h.Tick()
	h.WantState(task, tasker.TaskComplete)
}

func TestAttemptBeyondItsTimeoutFails(t *testing.T) {
	h := newHarness(t)
	s := attempts(1, enginetest.Step("one"))
	s.TimeoutSeconds = 3
	h.Template("single", s)
	task := h.Create("single")
	a := h.ClaimOne("one")
	require(t, a.Deadline != nil && !a.LeaseExpiresAt.After(*a.Deadline),
		"deadline %v, lease until %v", a.Deadline, a.LeaseExpiresAt)
	// Signs of life do not move the deadline.
	beat, err := h.Engine.Heartbeat(t.Context(), h.Worker, []tasker.Lease{a.Lease()})
	h.Must(err)
	require(t, len(beat.Extended) == 1 && !beat.Extended[0].ExpiresAt.After(*a.Deadline), "beat %+v", beat)
	h.Exec(`UPDATE tasker.workflow_steps SET timeout_at = clock_timestamp(), lease_expires_at = clock_timestamp()`)
	h.Tick()
	h.WantState(task, tasker.TaskError)
	h.WantDetail(task, tasker.StepTimeout)
}

func TestInvalidReportsAreRejected(t *testing.T) {
	h := newSingle(t)
	task := h.Create("single")
	a := h.ClaimOne("one")
	other := h.RegisterWorker("run")
	r, err := h.Engine.Report(t.Context(), other, []tasker.Outcome{success(a, `1`)}, 0)
	h.Must(err)
	check(t, len(r.Rejected) == 1 && strings.Contains(r.Rejected[0].Message, "another worker"), "receipt %+v", r)
	unknown := success(a, `1`)
	unknown.StepUUID = tasker.NewID()
	bad := tasker.Outcome{Lease: a.Lease()} // a failure without an error
	if r = h.Report(unknown, bad); len(r.Rejected) != 2 || len(r.Accepted) != 0 {
		t.Errorf("receipt %+v", r)
	}
	for _, x := range r.Rejected {
		want := map[tasker.ID]tasker.Code{unknown.StepUUID: tasker.NotFound, a.StepUUID: tasker.Invalid}[x.StepUUID]
		check(t, x.Code == want, "rejected with %s, want %s", x.Code, want)
	}
	h.WantStep(task, "one", tasker.StepInProgress, 1)
	h.Accepted(success(a, `1`))
	_, err = h.Engine.Report(t.Context(), tasker.NewID(), []tasker.Outcome{success(a, `1`)}, 0)
	h.WantCode(err, tasker.NotFound)
}

func TestMalformedFailureIsCleanedAndAccepted(t *testing.T) {
	h := newSingle(t)
	task := h.Create("single")
	o := failure(h.ClaimOne("one"), true)
	o.Failure.Message = "sound\a nul\x00 broken\xff " + strings.Repeat("x", 20_000)
	o.Failure.Type = ""
	o.Failure.Context = json.RawMessage(`{"a": "\u0000"}`)
	h.Accepted(o)
	var f tasker.StepFailure
	h.Must(json.Unmarshal(h.Step(task, "one").Error, &f))
	if !strings.HasPrefix(f.Message, "sound nul broken") || len(f.Message) > 8<<10 || f.Type != "error" || !strings.Contains(string(f.Context), "dropped") {
		t.Errorf("failure %.60s… (%d bytes), type %s, context %s", f.Message, len(f.Message), f.Type, f.Context)
	}
}

func TestDeferredReportIsAppliedLater(t *testing.T) {
	h := newHarness(t)
	h.Template("chain", enginetest.Step("one"), enginetest.Step("two", "one"))
	task := h.Create("chain")
	a := h.ClaimOne("one")
	h.poison("UPDATE ON tasker.workflow_steps", "NEW.state = 'complete'")
	h.Accepted(success(a, `{"n": 1}`))
	h.WantStep(task, "one", tasker.StepEnqueuedForOrchestration, 1)
	h.WantState(task, tasker.TaskStepsInProcess)
	h.heal()
	fixture.DeferredReportsDue(h, h.Admin())
	h.Tick()
	equal(t, "result for step two", string(h.ClaimOne("two").DependencyResults["one"]), `{"n": 1}`)
	h.WantStep(task, "one", tasker.StepComplete, 1)
}

func TestDeferredFailureIsReportedAsAFailure(t *testing.T) {
	h := newHarness(t)
	var told []engine.Attempt
	h.DB = enginetest.Open(h, h.URL, postgres.Options{ReportQueues: true})
	h.Engine = newEngine(h.DB, engine.Options{Hooks: enginetest.Hooks{Ended: func(list []engine.Attempt) { told = append(told, list...) }}})
	h.Template("only", enginetest.Step("one"))
	h.Create("only")
	a := h.ClaimOne("one")
	h.poison("UPDATE ON tasker.workflow_steps", "NEW.state = 'error'")
	o := failure(a, true)
	o.Failure.Fingerprint = "gateway"
	h.Report(o)
	h.heal()
	require(t, len(told) == 0, "told before it counts: %+v", told)
	fixture.DeferredReportsDue(h, h.Admin())
	h.Tick()
	if len(told) != 1 || told[0].Failure == nil || told[0].Failure.Type != "luck" || told[0].Failure.Message != "no luck" || told[0].Failure.Fingerprint != "gateway" {
		t.Errorf("told %+v", told)
	}
}
