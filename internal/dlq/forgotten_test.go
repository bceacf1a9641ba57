package dlq_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/postgres"
)

// These are stories at whose end a task could stand in error with nobody who looks at it.

func (h *harness) end(task tasker.ID, status tasker.ResolutionStatus) {
	h.Helper()
	e := h.Entry(task)
	h.update(e.UUID, tasker.EntryUpdate{Status: &status, Notes: new("n"), ResolvedBy: new("ann")})
}

// claims takes all that is enqueued, by the names of the steps.
func (h *harness) claims() map[string]tasker.Assignment {
	h.Helper()
	list, err := h.Engine.Claim(h.Context(), h.worker, 100, 0)
	h.Must(err)
	out := map[string]tasker.Assignment{}
	for _, a := range list {
		out[a.Name] = a
	}
	return out
}

func (h *harness) fail(a tasker.Assignment, retryable bool) {
	h.Helper()
	h.report(tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Message: "no " + a.Name, Retryable: retryable}})
}

func (h *harness) succeed(a tasker.Assignment) {
	h.Helper()
	h.report(tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage(`1`)})
}

// watched checks that a task stands in error with nobody who looks into it, and
// that the sweep finds it when the recovery window is over.
func (h *harness) watched(task tasker.ID) {
	h.Helper()
	if s := h.State(task); s != tasker.TaskError {
		h.Fatalf("task is %s", s)
	}
	h.Exec(`UPDATE tasker.tasks SET attend_by = attend_by - interval '61 minutes' WHERE task_uuid = $1`, task)
	h.sweep(1)
}

func TestAnInvestigationThatEndsLeavesATaskInErrorToTheSweep(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	e := h.failed()
	h.end(e.TaskUUID, tasker.EntryManuallyResolved) // which it is not
	h.watched(e.TaskUUID)

	byHand := h.failed().TaskUUID
	h.end(byHand, tasker.EntryManuallyResolved)
	h.openByHand(byHand)
	h.end(byHand, tasker.EntryCancelled)
	h.watched(byHand)
}

func TestAFailureAfterTheInvestigationOfAStaleTaskIsNotForgotten(t *testing.T) {
	t.Parallel()
	for _, status := range []tasker.ResolutionStatus{tasker.EntryManuallyResolved, tasker.EntryCancelled} {
		h := newHarness(t)
		step := oneAttempt("one")
		step.Retry.MaxAttempts = 3
		h.register("patient", tasker.Lifecycle{}, step)
		task := h.Create("patient")
		a := h.claim()
		h.stand(task, time.Hour)
		h.sweep(1)
		h.end(task, status)
		h.fail(a, true) // a task in error retries nothing by itself
		h.watched(task)
	}
}

func TestARecoveredTaskThatComesToErrorWithoutAFailure(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register("fork", tasker.Lifecycle{}, oneAttempt("a"), oneAttempt("b"), oneAttempt("c", "a"))
	task := h.Create("fork")
	held := h.claims()
	h.fail(held["b"], false)
	h.end(task, tasker.EntryCancelled)
	h.stand(task, time.Hour)
	h.sweep(1)
	h.succeed(held["a"])
	e := h.Entry(task)
	if e.RecoveredAt == nil {
		t.Fatal("the task has not recovered")
	}
	h.succeed(h.claims()["c"])
	e = h.Entry(task)
	if got := h.events(e.UUID); h.State(task) != tasker.TaskError || e.RecoveredAt != nil || got[len(got)-1] != "stuck_again" {
		t.Errorf("task is %s, recovered at %v, history %v", h.State(task), e.RecoveredAt, got)
	}
}

func TestEveryStepThatFailedMeanwhileGoesIntoTheNextInvestigation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register("wide", tasker.Lifecycle{}, oneAttempt("a"), oneAttempt("b"), oneAttempt("c"), oneAttempt("d"))
	task := h.Create("wide")
	held := h.claims()
	for _, name := range []string{"a", "b", "c"} {
		h.fail(held[name], false)
	}
	h.end(task, tasker.EntryManuallyResolved)
	second := h.Entry(task)
	if *second.StepUUID != held["c"].StepUUID || len(h.events(second.UUID)) != 2 {
		t.Errorf("the second is about %s: %v", second.StepUUID, h.events(second.UUID))
	}
	h.operate(task, held["c"].StepUUID, tasker.ResolveManually)
	h.end(task, tasker.EntryManuallyResolved)
	third := h.Entry(task)
	if third.ResolutionStatus != tasker.EntryPending || *third.StepUUID != held["b"].StepUUID {
		t.Errorf("the third is %s, about %s", third.ResolutionStatus, third.StepUUID)
	}
}

// What a path hides in the snapshot is hidden where the history and the events tell of it.
func TestRedactedPathsApplyToHistoryAndEvents(t *testing.T) {
	t.Parallel()
	for _, path := range [][]string{{"steps", "*", "error"}, {"steps", "*", "failures", "*", "error", "message"}} {
		h := newHarness(t)
		h.Must(h.DB.SetRedaction(t.Context(), postgres.Redaction{KeyPattern: "^(pin)$", Document: "pin", Paths: [][]string{path}}))
		h.register("fork", tasker.Lifecycle{}, oneAttempt("a"), oneAttempt("b"))
		task := h.Create("fork")
		for _, a := range h.claims() {
			h.report(tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Message: "card 4111 is refused"}})
		}
		var told string
		h.Must(h.Admin().QueryRow(t.Context(), `
			SELECT concat((SELECT string_agg(concat(notes, metadata), '') FROM tasker.tasks_dlq_history),
				(SELECT string_agg(data::text, '') FROM tasker.outbox)) FROM tasker.tasks WHERE task_uuid = $1`, task).Scan(&told))
		if strings.Contains(told, "4111") || !strings.Contains(told, "step_failed") {
			t.Errorf("with %v hidden, told is %s", path, told)
		}
	}
}

// However large the results of a task are and however many keys must not be
// shown, it becomes an investigation.
func TestLargeResultsWithSecretsDoNotKeepATaskFromItsInvestigation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	steps := []tasker.StepTemplate{oneAttempt("last")}
	for i := range 20 {
		steps = append(steps, oneAttempt(fmt.Sprint("s", i)))
	}
	h.register("large", tasker.Lifecycle{}, steps...)
	task := h.Create("large")
	large := `{"small": {"api_key": "s3cret"}, "list": [` + strings.Repeat(`{"id": 1, "card_token": "s3cret", "u": {"token": "s3cret"}},`, 2400) + `1]}`
	held := h.claims()
	for name, a := range held {
		if name != "last" {
			h.report(tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage(large)})
		}
	}
	h.fail(held["last"], false)
	e := h.Entry(task)
	if text := string(e.Snapshot); strings.Contains(text, "s3cret") || !strings.Contains(text, "characters with a key that must not be shown") {
		t.Errorf("the snapshot of %d bytes", len(text))
	}
}

// What is over its duration or its due time is known also when its investigation got a weightier reason meanwhile.
func TestWhatWasInvestigatedAndRaisedIsNotInvestigatedAgain(t *testing.T) {
	t.Parallel()
	for code, over := range map[string]string{
		tasker.MaxDuration: `UPDATE tasker.tasks SET ends_at = now() - interval '1 minute'`,
		tasker.Overdue:     `UPDATE tasker.deadlines SET due_at = due_at - interval '10 minutes', warn_at = warn_at - interval '10 minutes', set_at = set_at - interval '10 minutes'`,
	} {
		h := newHarness(t)
		_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{
			Namespace: h.Space, Name: "late", Version: "1.0.0", Lifecycle: tasker.Lifecycle{MaxDurationMinutes: 60},
			Due: tasker.DuePolicy{AfterSeconds: 60, Overdue: tasker.OverdueInvestigate}, Steps: []tasker.StepTemplate{oneAttempt("one"), oneAttempt("two", "one")},
		}, "")
		h.Must(err)
		task := h.Create("late")
		a := h.claim()
		h.Exec(over)
		h.sweep(1)
		h.fail(a, false)
		if e := h.Entry(task); e.Reason != tasker.MaxRetriesExceeded || string(e.OriginalCode) != code {
			t.Fatalf("the investigation is %s, before %s", e.Reason, e.OriginalCode)
		}
		h.operate(task, a.StepUUID, tasker.ResetForRetry)
		h.end(task, tasker.EntryManuallyResolved)
		h.sweep(0)
		h.succeed(h.claim())
		h.succeed(h.claim())
		if s := h.State(task); s != tasker.TaskComplete {
			t.Errorf("%s: the task is %s", code, s)
		}
	}
}

// A task whose step has waited for a limit for long is not stale when the step is handed out, or is back in the queue.
func TestATaskThatHasWaitedForALimitIsNotStale(t *testing.T) {
	t.Parallel()
	for _, free := range []string{"report", "no limit"} {
		h := newHarness(t)
		h.register("single", tasker.Lifecycle{MaxStepsInProcessMinutes: 30}, oneAttempt("one"))
		server, by := tasker.LimitRef{Kind: tasker.ServerLimit}, engine.LimitChange{Actor: "ann", Reason: "r"}
		_, err := h.Engine.SetLimit(t.Context(), server, tasker.LimitValue{MaxInProgress: 1}, by)
		h.Must(err)
		h.Create("single")
		first := h.claim()
		task := h.Create("single")
		if list := h.claims(); len(list) > 0 {
			t.Fatalf("claimed %v", list)
		}
		if n := h.Count(`SELECT count(*) FROM tasker.held_steps WHERE task_uuid = $1`, task); n != 1 {
			t.Fatalf("%d steps are put aside", n)
		}
		h.stand(task, 2*time.Hour)
		h.sweep(0)
		if free == "report" {
			h.succeed(first)
		} else {
			h.Must(h.Engine.DeleteLimit(t.Context(), server, by))
			_, err = h.Engine.Tick(t.Context())
			h.Must(err)
			if n := h.Count(`SELECT count(*) FROM tasker.ready_steps WHERE task_uuid = $1`, task); n != 1 {
				t.Fatalf("%d steps are back in the queue", n)
			}
			h.sweep(0)
		}
		a := h.claim()
		h.sweep(0)
		if a.TaskUUID != task || h.State(task) != tasker.TaskStepsInProcess {
			t.Errorf("%s: the task is %s", free, h.State(task))
		}
		for minutes, want := range map[int]int{29: 0, 31: 1} {
			if n := h.Count(`SELECT count(*) FROM tasker.get_stale_tasks_for_dlq(10, clock_timestamp() + make_interval(mins => $1)) WHERE task_uuid = $2`, minutes, task); n != want {
				t.Errorf("%s: %d tasks are stale after %d minutes, want %d", free, n, minutes, want)
			}
		}
	}
}

// What the sweep has set aside is so no more when its task has gone on.
func TestDeferredSweepWorkIsRemovedWhenItsTaskRecovers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	gone, stale := h.create(), h.create()
	held := map[tasker.ID]tasker.Assignment{}
	for range 2 {
		a := h.claim()
		held[a.TaskUUID] = a
	}
	h.stand(gone, time.Hour)
	h.stand(stale, time.Hour)
	h.poison("true")
	_, _ = h.DLQ.Sweep(t.Context()) // which says that it failed
	h.heal()
	if n := h.Count(`SELECT count(*) FROM tasker.deferred_work WHERE kind = 'sweep'`); n != 2 {
		t.Fatalf("%d tasks are set aside", n)
	}
	h.Exec(`UPDATE tasker.deferred_work SET retry_at = now() + interval '1 hour' WHERE task_uuid = $1`, stale)
	h.succeed(held[gone])
	h.sweep(0)
	if n := h.Count(`SELECT count(*) FROM tasker.deferred_work WHERE task_uuid = $1`, stale); n != 1 || h.Count(`SELECT count(*) FROM tasker.deferred_work`) != 1 {
		t.Errorf("%d rows of the task that is still stale", n)
	}
	h.Exec(`UPDATE tasker.deferred_work SET retry_at = now()`)
	h.sweep(1)
	if n := h.Count(`SELECT count(*) FROM tasker.deferred_work`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	h.succeed(held[stale])
}

// A batch that takes longer than a statement may is made smaller.
func TestASlowBatchIsMadeSmaller(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for range 8 {
		h.stand(h.create(), time.Hour)
	}
	slow, err := postgres.Open(t.Context(), h.DB.Pool().Config().ConnString(), postgres.Options{StatementTimeout: 6 * time.Second})
	h.Must(err)
	defer slow.Close()
	h.Exec(`CREATE FUNCTION public.dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(2); RETURN NEW; END $$`)
	h.Exec(`CREATE TRIGGER slow BEFORE INSERT ON tasker.tasks_dlq FOR EACH ROW EXECUTE FUNCTION public.dawdle()`)
	n, err := dlq.New(slow, dlq.Options{BatchSize: 8}).Sweep(t.Context())
	h.Must(err)
	if n < 1 || n > 3 {
		t.Errorf("a batch of %d", n)
	}
}

// One attempt whose follow-up fails does not keep the others that ran out.
func TestFailingExpiryDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	poisoned, sound := h.create(), h.create()
	h.claims()
	h.poison("NEW.task_uuid = '%s'", poisoned)
	h.Exec(`UPDATE tasker.workflow_steps SET lease_expires_at = clock_timestamp()`)
	_, err := h.Engine.Tick(t.Context())
	h.Must(err)
	if p, s := h.State(poisoned), h.State(sound); p != tasker.TaskStepsInProcess || s != tasker.TaskError {
		t.Errorf("the poisoned task is %s, the sound one %s", p, s)
	}
	h.heal()
	h.Exec(`UPDATE tasker.deferred_work SET retry_at = clock_timestamp()`)
	_, err = h.Engine.RetryDeferred(t.Context())
	h.Must(err)
	if p := h.State(poisoned); p != tasker.TaskError {
		t.Errorf("once fixed it is %s", p)
	}
}

// Concurrent sweeps share what is due: each task gets one investigation, no sweep fails or logs an
// error, and the counters of all sweeps add up.
func TestConcurrentSweepsShareDueTasks(t *testing.T) {
	t.Parallel()
	const tasks, sweepers = 150, 4
	for name, overdue := range map[string]func(h *harness){
		"stale": func(h *harness) {
			h.Exec(`UPDATE tasker.tasks SET state_since = state_since - interval '1 hour', warn_at = warn_at - interval '1 hour',
				stale_at = stale_at - interval '1 hour', created_at = created_at - interval '1 hour'`)
		},
		"in error without an investigation": func(h *harness) {
			for range tasks {
				h.fail(h.claim(), false)
			}
			h.Exec(`UPDATE tasker.tasks_dlq SET resolution_status = 'manually_resolved', resolved_at = clock_timestamp(), resolved_by = 'ann', resolution_notes = 'n'`)
			h.Exec(`INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status)
				SELECT dlq_entry_uuid, 'resolved', 'ann', 'pending', 'manually_resolved' FROM tasker.tasks_dlq`)
			h.Exec(`UPDATE tasker.tasks SET attend_by = clock_timestamp()`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			_, err := h.Engine.CreateTasks(t.Context(), slices.Repeat([]tasker.NewTask{{Namespace: "shop", Name: "single"}}, tasks))
			h.Must(err)
			overdue(h)
			var log syncedBuffer
			read := h.countedAndLogged(&log)
			var group sync.WaitGroup
			for range sweepers {
				group.Go(func() {
					for n := 1; n > 0; {
						var err error
						if n, err = h.DLQ.Sweep(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			if n := h.Count(`SELECT count(DISTINCT task_uuid) FROM tasker.tasks_dlq JOIN tasker.tasks t USING (task_uuid)
				WHERE resolution_status = 'pending' AND t.state = 'error'`); n != tasks {
				t.Errorf("%d of %d tasks have an investigation", n, tasks)
			}
			if text := log.String(); strings.Contains(text, "level=ERROR") {
				t.Errorf("a sweep logs %.300s", text)
			}
			for metric, got := range read() {
				if strings.Contains(metric, ".total ") && strings.HasPrefix(metric, "staleness.tasks") || metric == "dlq.pending_investigations" {
					if got != fmt.Sprint(tasks) {
						t.Errorf("%s is %s, want %d", metric, got, tasks)
					}
				}
			}
		})
	}
}

// A syncedBuffer is a builder for concurrent writers.
type syncedBuffer struct {
	strings.Builder
	mu sync.Mutex
}

func (b *syncedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Builder.Write(p)
}

// A task past its whole duration is found once: while it goes on although somebody
// looks into it, and when whoever did lets it run.
func TestATaskPastItsDurationIsFoundOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register("long", tasker.Lifecycle{MaxDurationMinutes: 10}, oneAttempt("one"), oneAttempt("two", "one"))
	task := h.Create("long")
	a := h.claim()
	h.stand(task, 11*time.Minute)
	h.sweep(1)
	h.succeed(a)
	h.sweep(0)
	if s := h.State(task); s != tasker.TaskStepsInProcess {
		t.Errorf("task is %s", s)
	}
	h.end(task, tasker.EntryManuallyResolved)
	h.sweep(0)
	h.stand(task, time.Hour) // but not when it stands still
	h.sweep(1)
}

// What is overdue is investigated where its template says so, by the rule of max_duration: once for a due time, and
// not because of a step that has ended.
func TestOverdueTasksAreInvestigatedIfConfigured(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	put := func(name string, lifecycle tasker.Lifecycle, due tasker.DuePolicy, steps ...tasker.StepTemplate) {
		_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{Namespace: h.Space, Name: name, Version: "1.0.0", Lifecycle: lifecycle, Due: due, Steps: steps}, "")
		h.Must(err)
	}
	quick, late := oneAttempt("one"), oneAttempt("two", "one")
	late.Due = tasker.DuePolicy{AfterSeconds: 60, Overdue: tasker.OverdueInvestigate}
	put("told", tasker.Lifecycle{}, tasker.DuePolicy{AfterSeconds: 60}, quick)
	put("whole", tasker.Lifecycle{MaxDurationMinutes: 60}, tasker.DuePolicy{AfterSeconds: 60, Overdue: tasker.OverdueInvestigate}, quick)
	put("step", tasker.Lifecycle{}, tasker.DuePolicy{}, quick, late)
	later := func() {
		h.Exec(`UPDATE tasker.deadlines SET due_at = due_at - interval '10 minutes', warn_at = warn_at - interval '10 minutes', look_at = look_at - interval '10 minutes', set_at = set_at - interval '10 minutes'`)
	}
	told := h.Create("told")
	later()
	h.sweep(0)
	h.succeed(h.claim())
	if s := h.State(told); s != tasker.TaskComplete {
		t.Fatalf("the task that is only told of is %s", s)
	}
	whole := h.Create("whole")
	task, err := h.DB.Task(t.Context(), whole)
	h.Must(err)
	if which, _ := tasker.FirstDeadline(task.Due, task.MaxDurationEndsAt); which != tasker.ByDueTime || task.MaxDurationEndsAt == nil {
		t.Errorf("first comes %s of %v and %v", which, task.Due, task.MaxDurationEndsAt)
	}
	a := h.claim()
	h.sweep(0)
	later()
	h.sweep(1)
	e := h.Entry(whole)
	if e.TaskDue == nil || e.TaskDue.State != tasker.DeadlineOverdue {
		t.Errorf("the investigation has the due time %+v", e.TaskDue)
	}
	if e.Reason != tasker.StalenessTimeout || e.DetailCode != tasker.Overdue || h.State(whole) != tasker.TaskError {
		t.Errorf("the investigation is %s, %s, and the task %s", e.Reason, e.DetailCode, h.State(whole))
	}
	queue, _, err := h.DB.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Limit: 10})
	h.Must(err)
	if len(queue) != 1 || queue[0].TaskDue == nil || queue[0].TaskDue.State != tasker.DeadlineOverdue {
		t.Errorf("the queue is %+v", queue)
	}
	h.end(whole, tasker.EntryManuallyResolved)
	h.sweep(0)
	h.succeed(a)
	step := h.Create("step")
	h.succeed(h.claim())
	_, err = h.Engine.Tick(t.Context())
	h.Must(err)
	later()
	h.sweep(1)
	if e, err = h.DB.EntryOfTask(t.Context(), step); err != nil || e.DetailCode != tasker.Overdue {
		t.Errorf("the investigation of the step is %s: %v", e.DetailCode, err)
	}
	ended := h.Create("step")
	for range 3 {
		_, err = h.Engine.Tick(t.Context())
		h.Must(err)
	}
	h.succeed(h.claim())
	h.succeed(h.claim())
	_, err = h.Engine.Tick(t.Context())
	h.Must(err)
	h.succeed(h.claim())
	later()
	h.sweep(0)
	if s := h.State(ended); s != tasker.TaskComplete {
		t.Errorf("the task whose step was in time is %s", s)
	}
}

// A step that fails again while its investigation is open is looked into by
// another one as soon as that ends, however and by whomever it is ended: also by
// somebody who says in which state it was read.
func TestAnEndedInvestigationLeavesNoFailureUnattended(t *testing.T) {
	t.Parallel()
	for _, status := range []tasker.ResolutionStatus{tasker.EntryManuallyResolved, tasker.EntryCancelled} {
		for _, asRead := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, as read %v", status, asRead), func(t *testing.T) {
				t.Parallel()
				h := newHarness(t)
				e := h.failed()
				before := e.UpdatedAt
				h.operate(e.TaskUUID, *e.StepUUID, tasker.ResetForRetry)
				h.fail(h.claim(), false)
				u := tasker.EntryUpdate{Status: &status, Notes: new("known"), ResolvedBy: new("ann")}
				if asRead {
					u.IfUnchangedSince = &before
					_, _, err := h.DLQ.Update(t.Context(), e.UUID, u)
					h.WantCode(err, tasker.Conflict, "was changed at")
					now := h.entry(e.UUID)
					u.IfUnchangedSince = &now.UpdatedAt
				}
				_, warn := h.update(e.UUID, u)
				next := h.Entry(e.TaskUUID)
				if next.UUID == e.UUID || next.ResolutionStatus != tasker.EntryPending || next.PredecessorUUID == nil || *next.PredecessorUUID != e.UUID {
					t.Errorf("the newest investigation is %+v", next)
				}
				if len(warn) != 1 || !strings.Contains(warn[0], next.UUID.String()) {
					t.Errorf("warnings %q do not name %s", warn, next.UUID)
				}
			})
		}
	}
}

func TestWarningsOfATaskThatStaysInError(t *testing.T) {
	t.Parallel()
	for status, words := range map[tasker.ResolutionStatus]string{
		tasker.EntryManuallyResolved: "a new one will be opened", tasker.EntryCancelled: "it will not be retried", tasker.EntryPermanentlyFailed: "",
	} {
		h := newHarness(t)
		e := h.failed()
		_, warn := h.update(e.UUID, tasker.EntryUpdate{Status: &status, Notes: new("n"), ResolvedBy: new("ann")})
		if words == "" && len(warn) > 0 || words != "" && (len(warn) != 1 || !strings.Contains(warn[0], words)) {
			t.Errorf("%s warns %q", status, warn)
		}
	}
}

// Another recovery window moves the instants by as much as it is longer; other
// thresholds do not move them.
func TestNewRecoveryWindowMovesDeadlines(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.end(h.failed().TaskUUID, tasker.EntryManuallyResolved)
	read := func() (at time.Time) {
		h.Must(h.Admin().QueryRow(t.Context(), `SELECT attend_by FROM tasker.tasks`).Scan(&at))
		return at
	}
	was := read()
	for _, th := range []postgres.Thresholds{
		{WaitingForDependencies: 61, WaitingForRetry: 30, StepsInProcess: 30, ErrorRecovery: 60},
		{WaitingForDependencies: 61, WaitingForRetry: 30, StepsInProcess: 30, ErrorRecovery: 75},
	} {
		h.setThresholds(th)
		want := was.Add(time.Duration(th.ErrorRecovery-60) * time.Minute)
		if got := read(); !got.Equal(want) {
			t.Errorf("with a window of %d minutes it is looked after at %s, want %s", th.ErrorRecovery, got, want)
		}
	}
}

// The longer of two rests holds as soon as the shorter one is settled by hand.
func TestLongestRetryDelaySetsTheThreshold(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	steps := []tasker.StepTemplate{oneAttempt("soon"), oneAttempt("late")}
	for i := range steps {
		steps[i].Retry.MaxAttempts = 2
	}
	h.register("rests", tasker.Lifecycle{}, steps...)
	task := h.Create("rests")
	held := h.claims()
	for name, rest := range map[string]time.Duration{"soon": 0, "late": 10 * time.Hour} {
		h.report(tasker.Outcome{Lease: held[name].Lease(), Failure: &tasker.Failure{Message: "no", Retryable: true, RetryAfter: rest}})
	}
	h.operate(task, held["soon"].StepUUID, tasker.ResolveManually)
	var minutes float64
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT extract(epoch FROM stale_at - state_since) / 60 FROM tasker.tasks`).Scan(&minutes))
	if minutes != 30+1024 {
		t.Errorf("the task may stand for %g minutes", minutes)
	}
}
