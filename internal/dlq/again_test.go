package dlq_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/postgres"
)

// register stores a template of steps that have one attempt each.
func (h *harness) register(name string, life tasker.Lifecycle, steps ...tasker.StepTemplate) {
	h.Helper()
	_, _, err := h.Engine.RegisterTemplate(h.Context(), tasker.Template{
		Namespace: "shop", Name: name, Version: "1.0.0", Lifecycle: life, Steps: steps,
	}, "")
	h.Must(err)
}

func oneAttempt(name string, after ...string) tasker.StepTemplate {
	return enginetest.Once(enginetest.Step(name, after...))
}

// events returns what the history of an investigation tells.
func (h *harness) events(entry tasker.ID) []string {
	h.Helper()
	e := h.entry(entry)
	var list []string
	for _, x := range e.History {
		list = append(list, x.Event)
	}
	return list
}

func (h *harness) sweep(want int) {
	h.Helper()
	n, err := h.DLQ.Sweep(h.Context())
	h.Must(err)
	if n != want {
		h.Fatalf("the sweep moved %d tasks, want %d", n, want)
	}
}

// A task that had gone on is stuck again while its investigation is still open:
// that one is about it again, and no longer last in the queue.
func TestARecoveredTaskThatIsStuckAgain(t *testing.T) {
	t.Parallel()
	for name, stick := range map[string]func(*harness, tasker.ID){
		"it stands still": func(h *harness, task tasker.ID) {
			h.claim()
			h.stand(task, time.Hour)
			h.sweep(1)
		},
		"a step fails": func(h *harness, _ tasker.ID) {
			h.fail(h.claim(), false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.register("chain", tasker.Lifecycle{}, oneAttempt("one"), oneAttempt("two", "one"))
			task := h.Create("chain")
			a := h.claim()
			h.stand(task, time.Hour)
			h.sweep(1)
			h.succeed(a)
			first := h.Entry(task)
			if first.RecoveredAt == nil || h.State(task) != tasker.TaskStepsInProcess {
				t.Fatalf("recovered at %v, task is %s", first.RecoveredAt, h.State(task))
			}
			stick(h, task)
			got := h.Entry(task)
			if got.UUID != first.UUID || got.RecoveredAt != nil || h.State(task) != tasker.TaskError {
				t.Errorf("investigation %s of %s recovered at %v; task is %s", got.UUID, first.UUID, got.RecoveredAt, h.State(task))
			}
			want := []string{"created", "recovered", "stuck_again"}
			if name == "a step fails" {
				want = append(want, "step_failed", "raised")
			}
			if diff := cmp.Diff(want, h.events(first.UUID)); diff != "" {
				t.Error(diff)
			}
			queue, _, err := h.DB.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Limit: 10})
			h.Must(err)
			if len(queue) != 1 || queue[0].RecoveredAt != nil {
				t.Errorf("the queue is %+v", queue)
			}
		})
	}
}

// A rest that was asked for is no standstill: an investigation would take the
// retry away. What is overdue after it is one.
func TestLongRetryDelayIsNotStale(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		life tasker.Lifecycle
		rest time.Duration
		want string // threshold in minutes
	}{
		{"none to speak of", tasker.Lifecycle{}, 30 * time.Second, "30.000"},
		{"a minute", tasker.Lifecycle{}, time.Minute, "30.000"},
		{"five minutes", tasker.Lifecycle{}, 5 * time.Minute, "38.000"},
		{"two hours", tasker.Lifecycle{}, 2 * time.Hour, "158.000"},
		{"two hours, of which the template knows nothing", tasker.Lifecycle{MaxWaitingForRetryMinutes: 45}, 2 * time.Hour, "45.000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			step := oneAttempt("one")
			step.Retry.MaxAttempts = 3
			h.register("resting", tt.life, step)
			task := h.Create("resting")
			h.report(tasker.Outcome{Lease: h.claim().Lease(), Failure: &tasker.Failure{Message: "later", Retryable: true, RetryAfter: tt.rest}})
			threshold := func() (got string) {
				h.Must(h.Admin().QueryRow(t.Context(), `
					SELECT round(extract(epoch FROM stale_at - state_since) / 60, 3)::text FROM tasker.tasks WHERE task_uuid = $1 AND state = 'waiting_for_retry'`,
					task).Scan(&got))
				return got
			}
			if got := threshold(); got != tt.want {
				t.Errorf("the threshold is %s minutes, want %s", got, tt.want)
			}
			// Other thresholds and back again: the rest is counted as before.
			for _, minutes := range []int{31, 30} {
				h.setThresholds(postgres.Thresholds{
					WaitingForDependencies: 60, WaitingForRetry: minutes, StepsInProcess: 30, ErrorRecovery: 60,
				})
			}
			if got := threshold(); got != tt.want {
				t.Errorf("once set anew, the threshold is %s minutes, want %s", got, tt.want)
			}
			h.Exec(`UPDATE tasker.tasks SET state_since = state_since - (stale_at - clock_timestamp()),
				warn_at = warn_at - (stale_at - clock_timestamp()), stale_at = clock_timestamp()`)
			h.sweep(1)
		})
	}
}

// What may yet go on by itself is not written off: nobody would look at it.
func TestRunningTaskCannotBeWrittenOff(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	off := tasker.EntryUpdate{Status: new(tasker.EntryPermanentlyFailed), Notes: new("gone"), ResolvedBy: new("ann")}
	running := h.create()
	open := h.openByHand(running)
	_, _, err := h.DLQ.Update(t.Context(), open.UUID, off)
	h.WantCode(err, tasker.Conflict, "steps_in_process", "1 steps in flight", "cancel it before")

	h.stand(running, time.Hour)
	h.update(open.UUID, tasker.EntryUpdate{Status: new(tasker.EntryCancelled), Notes: new("n"), ResolvedBy: new("ann")})
	h.sweep(1)
	stale := h.Entry(running)
	_, _, err = h.DLQ.Update(t.Context(), stale.UUID, off)
	h.WantCode(err, tasker.Conflict, "is error with 1 steps in flight")
	h.Must(h.Engine.CancelTask(t.Context(), running, "ann", "gone"))
	h.update(stale.UUID, off)
	_, err = h.DLQ.Open(t.Context(), running, tasker.NewEntry{Actor: "ann", Reason: "odd"})
	h.WantCode(err, tasker.Conflict, "written off")

	// What ends by the clock would bring the task back, and have done again what a new task does in its place.
	rest := oneAttempt("rest")
	rest.Type, rest.Handler, rest.WaitSeconds = tasker.WaitStep, tasker.Handler{}, 3600
	h.register("rests", tasker.Lifecycle{}, oneAttempt("one"), rest, oneAttempt("two", "rest"))
	rests := h.Create("rests")
	h.fail(h.claim(), false)
	failed := h.Entry(rests)
	_, _, err = h.DLQ.Update(t.Context(), failed.UUID, off)
	h.WantCode(err, tasker.Conflict, "is error with 1 steps in flight", "cancel it before")
	h.Must(h.Engine.CancelTask(t.Context(), rests, "ann", "gone"))
	h.update(failed.UUID, off)
}

// Nor does an answer from outside bring back what was written off.
func TestWrittenOffTaskRejectsExternalResults(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	ask := oneAttempt("ask")
	ask.Type, ask.Handler = tasker.ExternalStep, tasker.Handler{}
	h.register("asks", tasker.Lifecycle{}, ask)
	task := h.Create("asks")
	h.stand(task, 2*time.Hour)
	h.sweep(1)
	e := h.Entry(task)
	h.update(e.UUID, tasker.EntryUpdate{Status: new(tasker.EntryPermanentlyFailed), Notes: new("gone"), ResolvedBy: new("ann")})
	steps, err := h.DB.Steps(t.Context(), task)
	h.Must(err)
	_, err = h.Engine.CompleteExternal(t.Context(), task, steps[0].UUID, tasker.Outcome{Success: true}, "bank")
	h.WantCode(err, tasker.Conflict, "written off")
}

// An investigation of one branch is open when the last of the others ends: the
// task comes to error, and the sweep has nothing to do there.
func TestSweepSkipsTasksUnderInvestigation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register("fork", tasker.Lifecycle{}, oneAttempt("one"), oneAttempt("two"))
	task := h.Create("fork")
	one, two := h.claim(), h.claim()
	h.fail(one, false)
	h.succeed(two)
	if s := h.State(task); s != tasker.TaskError {
		t.Fatalf("task is %s", s)
	}
	h.Exec(`UPDATE tasker.tasks SET attend_by = attend_by - interval '2 hours'`)
	swept, err := h.DB.SweepStale(t.Context(), false, 10, 0)
	h.Must(err)
	if len(swept) != 0 {
		t.Errorf("the sweep finds %+v", swept)
	}
}

// A task that makes progress is stale only when it has stood for its whole threshold since then.
func TestProgressRestartsTheThreshold(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register("chain", tasker.Lifecycle{}, oneAttempt("one"), oneAttempt("two", "one"))
	task := h.Create("chain")
	a := h.claim()
	h.stand(task, 29*time.Minute)
	h.succeed(a)
	h.stand(task, 29*time.Minute)
	h.sweep(0)
	h.stand(task, time.Minute)
	h.sweep(1)
}

// A worker that reports what it no longer holds does not make a task look as if it went on.
func TestRejectedReportIsNotProgress(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register("chain", tasker.Lifecycle{}, oneAttempt("one"), oneAttempt("two", "one"))
	task := h.Create("chain")
	lost := h.claim()
	h.operate(task, lost.StepUUID, tasker.ResolveManually)
	for _, before := range []tasker.TaskState{tasker.TaskStepsInProcess, tasker.TaskError} {
		if before == tasker.TaskError {
			h.sweep(1)
		}
		h.stand(task, 31*time.Minute)
		var since, after time.Time
		read := `SELECT state_since FROM tasker.tasks WHERE task_uuid = $1`
		h.Must(h.Admin().QueryRow(t.Context(), read, task).Scan(&since))
		r, err := h.Engine.Report(t.Context(), h.worker, []tasker.Outcome{{Lease: lost.Lease(), Success: true, Result: json.RawMessage(`1`)}}, 0)
		h.Must(err)
		h.Must(h.Admin().QueryRow(t.Context(), read, task).Scan(&after))
		if len(r.Rejected) != 1 || h.State(task) != before || !after.Equal(since) {
			t.Errorf("in %s: receipt %+v; the task is %s since %s, was since %s", before, r, h.State(task), after, since)
		}
	}
}
