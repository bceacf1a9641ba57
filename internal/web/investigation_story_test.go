package web

import (
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
)

// told is a story of an investigation of task shop/order that was opened at noon.
func told(cause tasker.Cause) (narrativeInput, *snapshotStep) {
	steps := stepsOf("reserve", "charge: reserve", "ship: charge")
	steps[0].State, steps[1].State = tasker.StepComplete, tasker.StepError
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ev := narrativeInput{
		entry: tasker.Entry{
			StepUUID: &steps[1].UUID, Reason: cause.Reason, DetailCode: cause.Code, DetectedBy: tasker.DetectedInline, At: noon,
			OriginalState: tasker.TaskStepsInProcess, CurrentTaskState: tasker.TaskError,
		},
		task:  tasker.Task{Namespace: "shop", Name: "order"},
		steps: steps,
		then:  snapshot{InStateMinutes: 95, ThresholdMinutes: 60, AgeMinutes: 1500, MaxDuration: 1440},
	}
	for _, s := range steps {
		ev.then.Steps = append(ev.then.Steps, snapshotStep{UUID: s.UUID, Name: s.Name, Type: tasker.StandardStep, Handler: "run", State: s.State, MaxAttempts: 3})
	}
	charge := &ev.then.Steps[1]
	charge.Attempts, charge.LastFailureAt, charge.Error = 3, noon, []byte(`{"message":"card\ndeclined"}`)
	return ev, charge
}

func TestEveryCauseHasANarrative(t *testing.T) {
	stale := func(state tasker.TaskState) func(*narrativeInput, *snapshotStep) {
		return func(ev *narrativeInput, _ *snapshotStep) {
			ev.entry.StepUUID, ev.entry.OriginalState, ev.entry.DetectedBy = nil, state, tasker.DetectedSweep
		}
	}
	type key struct {
		reason tasker.Reason
		code   string
	}
	tests := map[key]struct {
		change func(*narrativeInput, *snapshotStep)
		want   string
	}{
		{tasker.DependencyCycleDetected, tasker.DependencyCycle}: {
			func(ev *narrativeInput, _ *snapshotStep) { ev.entry.StepUUID = nil },
			"The steps of shop/order form a dependency cycle (reserve, charge and ship), so none of them can run. It was detected immediately,",
		},
		{tasker.MaxRetriesExceeded, tasker.RetriesExhausted}: {
			nil, "Step charge of shop/order failed in all 3 attempts, the last at 2026-03-01 12:00:00 UTC: “card declined”. It was detected immediately",
		},
		{tasker.MaxRetriesExceeded, tasker.PermanentFailure}: {
			func(_ *narrativeInput, s *snapshotStep) { s.Attempts = 1 },
			"Step charge of shop/order failed in attempt 1 of 3 at 2026-03-01 12:00:00 UTC with an error that is not retryable: “card declined”.",
		},
		{tasker.MaxRetriesExceeded, tasker.WorkerLost}: {
			nil, "The worker of step charge of shop/order stopped sending heartbeats in attempt 3 of 3, the last at 2026-03-01 12:00:00 UTC.",
		},
		{tasker.MaxRetriesExceeded, tasker.StepTimeout}: {
			nil, "Step charge of shop/order exceeded its timeout in its last attempt, 3 of 3 at 2026-03-01 12:00:00 UTC.",
		},
		{tasker.MaxRetriesExceeded, tasker.ExternalFailure}: {
			nil, "The external system reported that step charge of shop/order failed at 2026-03-01 12:00:00 UTC: “card declined”.",
		},
		{tasker.MaxRetriesExceeded, tasker.ExternalTimeout}: {
			nil, "Step charge of shop/order received no external result before its timeout at 2026-03-01 12:00:00 UTC: “card declined”.",
		},
		{tasker.MaxRetriesExceeded, tasker.ChildRefused}: {
			nil, "The child task of step charge of shop/order could not be started at 2026-03-01 12:00:00 UTC: “card declined”.",
		},
		{tasker.MaxRetriesExceeded, tasker.ChildFailed}: {
			nil, "The child task of step charge of shop/order ended without a result at 2026-03-01 12:00:00 UTC: “card declined”.",
		},
		{tasker.MaxRetriesExceeded, tasker.ExpressionFailed}: {
			func(_ *narrativeInput, s *snapshotStep) {
				s.Error = []byte(`{"message":"when: there is no \"value\", in: results.score.value < 0.5"}`)
			},
			`The condition of step charge of shop/order could not be evaluated at 2026-03-01 12:00:00 UTC: “when: there is no "value", in: results.score.value < 0.5”.`,
		},
		{tasker.MaxRetriesExceeded, tasker.InputTooLarge}: {
			nil, "Step charge of shop/order failed permanently (input too large) at 2026-03-01 12:00:00 UTC: “card declined”.",
		},
		{tasker.MaxRetriesExceeded, tasker.UnrecoveredError}: {
			func(ev *narrativeInput, _ *snapshotStep) {
				ev.entry.DetectedBy, ev.entry.StepUUID = tasker.DetectedSweep, nil
			},
			"Step charge of shop/order failed at 2026-03-01 12:00:00 UTC: “card declined”. The task was in error for 1 h 35 min without an open investigation. The staleness sweep detected it at",
		},
		{tasker.StalenessTimeout, string(tasker.TaskStepsInProcess)}: {
			func(ev *narrativeInput, s *snapshotStep) {
				stale(tasker.TaskStepsInProcess)(ev, s)
				s.State, s.Attempts = tasker.StepInProgress, 1
			},
			"Task shop/order was in state steps in process for 1 h 35 min (limit 1 h 0 min): step charge was in progress in attempt 1 of 3. The staleness sweep detected it at 2026-03-01 12:00:00 UTC.",
		},
		{tasker.StalenessTimeout, string(tasker.TaskWaitingForDependencies)}: {
			func(ev *narrativeInput, s *snapshotStep) {
				stale(tasker.TaskWaitingForDependencies)(ev, s)
				s.State, s.Type = tasker.StepPending, tasker.ExternalStep
			},
			"in state waiting for dependencies for 1 h 35 min (limit 1 h 0 min): step charge waited for an external result.",
		},
		{tasker.StalenessTimeout, string(tasker.TaskWaitingForRetry)}: {
			func(ev *narrativeInput, s *snapshotStep) {
				stale(tasker.TaskWaitingForRetry)(ev, s)
				s.NextRetryAt = ev.entry.At.Add(-time.Hour)
			},
			"in state waiting for retry for 1 h 35 min (limit 1 h 0 min): step charge had a retry due at 2026-03-01 11:00:00 UTC.",
		},
		{tasker.StalenessTimeout, tasker.MaxDuration}: {
			func(ev *narrativeInput, s *snapshotStep) {
				stale(tasker.TaskStepsInProcess)(ev, s)
				s.State = tasker.StepEnqueued
			},
			"Task shop/order ran for 1 d 1 h (limit 1 d 0 h). Its state was steps in process: step charge waited for a worker.",
		},
		{tasker.StalenessTimeout, tasker.Overdue}: {
			func(ev *narrativeInput, s *snapshotStep) {
				stale(tasker.TaskStepsInProcess)(ev, s)
				s.State = tasker.StepEnqueued
			},
			"Task shop/order or one of its steps missed its due time. Its state was steps in process: step charge waited for a worker.",
		},
		{tasker.StalenessTimeout, tasker.DeferredWork}: {
			func(ev *narrativeInput, s *snapshotStep) {
				stale(tasker.TaskStepsInProcess)(ev, s)
				s.State = tasker.StepEnqueued
			},
			"The server failed repeatedly to process task shop/order. Its state was steps in process: step charge waited for a worker.",
		},
		{tasker.StalenessTimeout, tasker.UnrecoveredError}: {
			stale(tasker.TaskError), "Task shop/order was in error for 1 h 35 min without a failed step or an open investigation.",
		},
		{tasker.WorkerUnavailable, tasker.NoWorkers}: {
			func(ev *narrativeInput, s *snapshotStep) {
				ev.entry.DetectedBy = tasker.DetectedBroker
				s.Error = []byte(`{"message":"worker queue TTL expired"}`)
			},
			"No worker for step charge of shop/order (handler run, namespace shop) was online before its queue timeout: “worker queue TTL expired”. No attempt was used. The message broker reported it at 2026-03-01 12:00:00 UTC.",
		},
		{tasker.WorkerUnavailable, tasker.DispatchExpired}: {
			nil, "Step charge of shop/order (handler run, namespace shop) was not claimed before its queue timeout, although workers were online: “card declined”. No attempt was used.",
		},
		{tasker.ManualDLQ, tasker.OperatorRequest}: {
			func(ev *narrativeInput, _ *snapshotStep) {
				ev.entry.StepUUID, ev.entry.DetectedBy = nil, tasker.DetectedOperator
				ev.entry.History = []tasker.EntryChange{{Actor: "ann", Notes: new("looks odd")}}
			},
			"ann opened this investigation of task shop/order in state steps in process: “looks odd”. It was opened at 2026-03-01 12:00:00 UTC.",
		},
	}
	for _, cause := range tasker.Causes() {
		t.Run(string(cause.Reason)+" "+cause.Code, func(t *testing.T) {
			tt, ok := tests[key{cause.Reason, cause.Code}]
			if !ok {
				t.Fatal("has no test of its story")
			}
			ev, charge := told(cause)
			if tt.change != nil {
				tt.change(&ev, charge)
			}
			got := strings.Join(buildNarrative(ev), " ")
			if !strings.Contains(got, tt.want) || !strings.HasSuffix(got, " The task is in error.") {
				t.Errorf("the story is\n%s\nwant in it\n%s", got, tt.want)
			}
			if waits := strings.Contains(got, "Step ship is waiting for it."); waits != (ev.entry.StepUUID != nil) {
				t.Errorf("what waits: %s", got)
			}
		})
	}
}

func TestNarrativeVariants(t *testing.T) {
	at := time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		change func(*narrativeInput)
		want   string
	}{
		{"recovered", func(ev *narrativeInput) { ev.entry.RecoveredAt = &at }, "The task continued automatically at 2026-03-01 13:00:00 UTC and is in error."},
		{"ended", func(ev *narrativeInput) {
			ev.entry.ResolvedAt, ev.entry.ResolvedBy, ev.entry.ResolutionStatus = &at, new("ann"), tasker.EntryPermanentlyFailed
		}, "The task is in error. The investigation ended as permanently failed by ann at 2026-03-01 13:00:00 UTC."},
		{"evidence that was hidden", func(ev *narrativeInput) { ev.then = snapshot{} }, "Step charge of shop/order failed in all 3 attempts. It was"},
		{"a step that nobody knows", func(ev *narrativeInput) { ev.entry.StepUUID = new(tasker.NewID()) }, "Step ? of shop/order"},
		{"a code of a newer program", func(ev *narrativeInput) { ev.entry.DetailCode = "solar_flare" }, "Step charge of shop/order failed permanently (solar flare) at"},
		{"a reason of a newer program", func(ev *narrativeInput) { ev.entry.Reason = "weather" }, "Task shop/order needs an operator: retries_exhausted."},
		{"found by something newer", func(ev *narrativeInput) { ev.entry.DetectedBy = "oracle" },
			"It was detected by oracle at"},
		{"only one attempt", func(ev *narrativeInput) { ev.then.Steps[1].MaxAttempts = 1 }, "failed in its only attempt at 2026-03-01 12:00:00 UTC: “"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ev, _ := told(tasker.CauseOf(tasker.MaxRetriesExceeded, tasker.RetriesExhausted))
			tt.change(&ev)
			if got := strings.Join(buildNarrative(ev), " "); !strings.Contains(got, tt.want) {
				t.Errorf("the story is\n%s\nwant in it\n%s", got, tt.want)
			}
		})
	}
}

func TestListsInTextAreShortened(t *testing.T) {
	for want, names := range map[string][]string{
		"": nil, "a": {"a"}, "a and b": {"a", "b"}, "a, b, c, d and e": {"a", "b", "c", "d", "e"}, "a, b, c, d and 2 more": {"a", "b", "c", "d", "e", "f"},
	} {
		if got := formatList(names); got != want {
			t.Errorf("%v is %q, want %q", names, got, want)
		}
	}
}

// Any part of the evidence may be hidden, or be something else.
func TestMalformedEvidenceIsReadPartially(t *testing.T) {
	id := tasker.NewID()
	s := readSnapshot([]byte(`{"current_state":"error","time_in_state_minutes":"[redacted]","threshold_minutes":30,"thresholds":"[redacted]",
		"steps":["[redacted]",{"step_uuid":"` + id.String() + `","name":"charge","attempts":"[redacted]","error":{"message":7}}]}`))
	st, ok := s.findStep(id)
	if s.State != tasker.TaskError || s.InStateMinutes != 0 || s.ThresholdMinutes != 30 || len(s.Steps) != 2 || !ok || st.Name != "charge" || st.Attempts != 0 {
		t.Errorf("read %+v", s)
	}
	if m := parseFailure(st.Error).Message; m != `{"message":7}` {
		t.Errorf("the failure says %q", m)
	}
	if s := readSnapshot([]byte(`[]`)); s.State != "" || s.Steps != nil {
		t.Errorf("read %+v", s)
	}
	if m := parseFailure([]byte("null")).Message; m != "" {
		t.Errorf("no failure says %q", m)
	}
}

// The story of a raised investigation begins with what it was opened for.
func TestNarrativeOfARaisedInvestigation(t *testing.T) {
	ev, charge := told(tasker.CauseOf(tasker.MaxRetriesExceeded, tasker.RetriesExhausted))
	later := ev.entry.At.Add(18 * time.Minute)
	ev.entry.OriginalReason, ev.entry.OriginalCode, ev.entry.OriginalState = "manual_dlq", tasker.OperatorRequest, tasker.TaskStepsInProcess
	ev.entry.DetectedBy, charge.Error = tasker.DetectedOperator, nil
	ev.entry.History = []tasker.EntryChange{
		{Event: "created", At: ev.entry.At, Actor: "ann", Notes: new("odd")},
		{Event: "step_failed", At: later, Metadata: []byte(`{"step_uuid":"` + charge.UUID.String() + `"}`)},
		{Event: "raised", At: later, Metadata: []byte(`{"from":{"step_uuid":null}}`)},
	}
	want := "ann opened this investigation of task shop/order in state steps in process: “odd”. It was opened at 2026-03-01 12:00:00 UTC. " +
		"Since then step charge failed at 2026-03-01 12:18:00 UTC. " +
		"Since 2026-03-01 12:18:00 UTC the investigation has a more severe reason: a step failed in all of its attempts."
	if got := strings.Join(buildNarrative(ev), " "); !strings.HasPrefix(got, want) {
		t.Errorf("story: %s", got)
	}
}

func TestNarrativeOfTheLatestFailure(t *testing.T) {
	ev, charge := told(tasker.CauseOf(tasker.MaxRetriesExceeded, tasker.RetriesExhausted))
	later := ev.entry.At.Add(18 * time.Minute)
	failed := func(step tasker.ID, at time.Time, message string) tasker.EntryChange {
		return tasker.EntryChange{Event: "step_failed", At: at, Metadata: []byte(`{"step_uuid":"` + step.String() + `","error":{"message":"` + message + `"}}`)}
	}
	ev.entry.History = []tasker.EntryChange{
		{Event: "created", At: ev.entry.At}, failed(charge.UUID, later, "HTTP 503"), failed(charge.UUID, later.Add(time.Minute), "HTTP 404"),
		failed(ev.steps[2].UUID, later, "no truck"),
	}
	if got := strings.Join(buildNarrative(ev), " "); !strings.Contains(got,
		"Since then it failed again 2 times, the last at 2026-03-01 12:19:00 UTC: “HTTP 404” and step ship failed at 2026-03-01 12:18:00 UTC.") {
		t.Errorf("story: %s", got)
	}
	// Of a step that had failed while another investigation was open.
	ev, charge = told(tasker.CauseOf(tasker.MaxRetriesExceeded, tasker.RetriesExhausted))
	ev.entry.PredecessorUUID, charge.LastFailureAt = new(tasker.NewID()), ev.entry.At.Add(-7*time.Minute)
	got := strings.Join(buildNarrative(ev), " ")
	if strings.Contains(got, "detected immediately") || !strings.Contains(got, "This one was opened when it ended, at 2026-03-01 12:00:00 UTC") {
		t.Errorf("story: %s", got)
	}
}
