package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
)

const week = 7 * 24 * 3600

// timed gives an external step a timeout of a week.
func timed(outcome tasker.TimeoutOutcome, s tasker.StepTemplate) tasker.StepTemplate {
	s.TimeoutSeconds, s.OnTimeout = week, outcome
	if outcome == tasker.TimeoutCompletes {
		s.TimeoutResult = json.RawMessage(`{"approved": false}`)
	}
	return s
}

// aWeekLater has all waits be over, and what follows from it done.
func (h *harness) aWeekLater() {
	h.Helper()
	h.Exec(`UPDATE tasker.workflow_steps SET wait_until = wait_until - interval '7 days' WHERE wait_until IS NOT NULL`)
	h.tick()
	h.tick()
}

// wantWait expects an external step to wait for a week from now on.
func (h *harness) wantWait(task tasker.ID, name string) {
	h.Helper()
	s := h.step(task, name)
	if s.State != tasker.StepPending || s.WaitUntil == nil {
		h.Fatalf("%s is %s and waits until %v", name, s.State, s.WaitUntil)
	}
	if left := time.Until(*s.WaitUntil) - week*time.Second; left > time.Second || left < -time.Minute {
		h.Errorf("%s waits until %s", name, s.WaitUntil)
	}
}

// Nobody answers: the step fails, with an investigation; reset, it waits once more.
func TestAWaitThatNobodyAnswersFails(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approve", enginetest.Step("ask"), timed("", external("answer", "ask")), enginetest.Step("go", "answer"))
	task := h.Create("approve")
	if s := h.step(task, "answer"); s.WaitUntil != nil {
		t.Errorf("it waits until %v before it is asked", s.WaitUntil)
	}
	h.accepted(success(h.claimOne("ask"), `1`))
	h.wantWait(task, "answer")
	h.wantState(task, tasker.TaskWaitingForDependencies)
	h.tick()
	h.wantStep(task, "answer", tasker.StepPending, 0)
	h.aWeekLater()
	h.wantState(task, tasker.TaskError)
	s := h.step(task, "answer")
	if s.State != tasker.StepError || s.WaitUntil != nil || s.NextRetryAt != nil || !strings.Contains(string(s.Error), "no response within 168h0m0s (timeout_seconds)") {
		t.Errorf("the step is %s, waits until %v: %s", s.State, s.WaitUntil, s.Error)
	}
	if e := h.Entry(task); e.DetailCode != tasker.ExternalTimeout || e.ResolutionStatus != tasker.EntryPending {
		t.Errorf("the investigation is %s, %s", e.DetailCode, e.ResolutionStatus)
	}
	_, err := h.Engine.CompleteExternal(t.Context(), task, s.UUID, tasker.Outcome{Success: true}, "late")
	h.WantCode(err, tasker.Conflict, "is error already")
	_, err = h.Engine.OperateStep(t.Context(), task, s.UUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "asked again", Actor: "ann"})
	h.Must(err)
	h.wantWait(task, "answer")
	_, err = h.Engine.CompleteExternal(t.Context(), task, s.UUID, tasker.Outcome{Success: true, Result: json.RawMessage(`"yes"`)}, "desk")
	h.Must(err)
	if s := h.step(task, "answer"); s.WaitUntil != nil {
		t.Errorf("after the answer it waits until %v", s.WaitUntil)
	}
	h.accepted(success(h.claimOne("go"), `1`))
	h.aWeekLater()
	h.wantState(task, tasker.TaskComplete)
}

// "No" is an outcome: the template says with which result the step is complete.
func TestAWaitThatNobodyAnswersIsComplete(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approve", timed(tasker.TimeoutCompletes, external("answer")), when("!results.answer.approved", enginetest.Step("no", "answer")),
		when("results.answer.approved", enginetest.Step("yes", "answer")))
	task := h.Create("approve")
	h.wantWait(task, "answer")
	h.aWeekLater()
	h.wantStep(task, "answer", tasker.StepComplete, 0)
	h.wantSkipped(task, "yes", "condition is false")
	a := h.claimOne("no")
	if got := strings.ReplaceAll(string(a.DependencyResults["answer"]), " ", ""); got != `{"approved":false}` {
		t.Errorf("the next step is given %s", got)
	}
	h.accepted(success(a, `1`))
	h.wantState(task, tasker.TaskComplete)
	list, _, err := h.DB.StepTransitions(t.Context(), task, h.step(task, "answer").UUID, 10, 0)
	h.Must(err)
	if len(list) != 1 || list[0].Event != "elapse" || !strings.Contains(list[0].Reason, "no answer") {
		t.Errorf("the history is %+v", list)
	}
}

func TestAWaitThatNobodyAnswersIsSkipped(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approve", timed(tasker.TimeoutSkips, external("answer")), enginetest.Step("go", "answer"), joined(tasker.JoinNoneFailed, enginetest.Step("end", "answer", "go")))
	task := h.Create("approve")
	h.aWeekLater()
	h.wantSkipped(task, "answer", "no answer within")
	h.wantSkipped(task, "go", "answer was skipped")
	h.accepted(success(h.claimOne("end"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

// A step with a condition waits from when it is decided that it does; one of a task that starts later, from then.
func TestWhenAWaitBegins(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approve", when("context.ask", timed("", external("answer"))), when("!context.ask", enginetest.Step("other")))
	task := h.create("approve", `{"ask": true}`)
	if s := h.step(task, "answer"); s.WaitUntil != nil {
		t.Errorf("it waits until %v before it is decided", s.WaitUntil)
	}
	h.tick()
	h.wantWait(task, "answer")
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "not wanted"))
	h.Template("later", timed("", external("answer")))
	task = h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "later", StartAt: time.Now().Add(time.Hour)})
	if s := h.step(task, "answer"); s.WaitUntil == nil || time.Until(*s.WaitUntil) < (week+3500)*time.Second {
		t.Errorf("it waits until %v", s.WaitUntil)
	}
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "not wanted"))
	if n := h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE wait_until IS NOT NULL`); n != 0 {
		t.Errorf("%d cancelled steps wait", n)
	}
}

// A task that waits for an answer is not stale before the timeout, unless its template says when it is.
func TestAWaitWithATimeoutIsNoStandstill(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approve", timed("", external("answer")))
	h.Template("after", enginetest.Step("ask"), timed("", external("answer", "ask")))
	h.Template("without", external("answer"))
	_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: h.Space, Name: "strict", Version: "1.0.0", Steps: []tasker.StepTemplate{enginetest.Step("ask"), timed("", external("answer", "ask"))},
		Lifecycle: tasker.Lifecycle{MaxWaitingForDependenciesMinutes: 30},
	}, "")
	h.Must(err)
	for name, c := range map[string]struct{ least, most time.Duration }{
		"approve": {week * time.Second, 4 * week * time.Second}, "after": {week * time.Second, 4 * week * time.Second}, "without": {0, 2 * time.Hour}, "strict": {0, 31 * time.Minute},
	} {
		task := h.Create(name)
		for _, a := range h.claim() {
			h.accepted(success(a, `1`))
		}
		var stale time.Duration
		h.Must(h.pool.QueryRow(t.Context(), `SELECT stale_at - state_since FROM tasker.tasks WHERE task_uuid = $1`, task).Scan(&stale))
		if stale < c.least || stale > c.most {
			t.Errorf("%s is stale after %s, want between %s and %s", name, stale, c.least, c.most)
		}
	}
}

// servers has three servers do what is due, at the same time, until something is so.
func (h *harness) servers(until string, is func() bool) {
	h.Helper()
	ctx, stop := context.WithCancel(h.Context())
	var running sync.WaitGroup
	for _, e := range []*engine.Engine{h.Engine, newEngine(h.DB, engine.Options{}), newEngine(h.DB, engine.Options{})} {
		running.Go(func() {
			for ctx.Err() == nil {
				if _, err := e.Tick(ctx); err != nil && ctx.Err() == nil {
					h.Error(err)
				}
				// What a server did not reach in time, beside the one that cannot be moved, is set aside as well.
				if _, err := e.RetryDeferred(ctx); err != nil && ctx.Err() == nil {
					h.Error(err)
				}
			}
		})
	}
	defer running.Wait()
	defer stop()
	h.Eventually(until, is)
}

// wantRetried expects a step that was set aside to be complete when it is tried again. A server
// that was stopped may hold it for a moment.
func (h *harness) wantRetried(task tasker.ID, name string) {
	h.Helper()
	h.Eventually(name+" is complete", func() bool {
		h.retryDeferred()
		return h.step(task, name).State == tasker.StepComplete
	})
	h.wantStep(task, name, tasker.StepComplete, 0)
}

// Several servers end each wait once, and one that cannot be ended delays no other.
func TestAWaitEndsOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approve", timed(tasker.TimeoutCompletes, external("answer")), enginetest.Step("go", "answer"))
	const tasks = 60
	var all []tasker.ID
	for range tasks {
		all = append(all, h.Create("approve"))
	}
	h.poison("UPDATE ON tasker.workflow_steps", fmt.Sprintf("OLD.task_uuid = '%s' AND NEW.state = 'complete'", all[7]))
	h.Exec(`UPDATE tasker.workflow_steps SET wait_until = now() WHERE wait_until IS NOT NULL`)
	h.servers("all others end, and that one is set aside", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE name = 'answer' AND state = 'complete'`) == tasks-1 &&
			h.Count(`SELECT count(*) FROM tasker.deferred_work`) == 1
	})
	h.wantStep(all[7], "answer", tasker.StepPending, 0)
	h.heal()
	h.wantRetried(all[7], "answer")
	if n := h.Count(`SELECT count(*) FROM tasker.workflow_step_transitions WHERE event = 'elapse'`); n != tasks {
		t.Errorf("%d waits have ended, of %d", n, tasks)
	}
}

// remindedStep is an external step of which people are reminded after an hour and after two.
func remindedStep(s tasker.StepTemplate) tasker.StepTemplate {
	s.RemindAfterSeconds = []int{3600, 7200}
	return s
}

// later has the reminders of all waits come sooner, and does what is due by then.
func (h *harness) later(by string) {
	h.Helper()
	h.Exec(`UPDATE tasker.workflow_steps SET remind_at = remind_at - $1::interval, wait_until = wait_until - $1::interval WHERE remind_at IS NOT NULL`, by)
	h.tick()
}

// reminders returns the summaries of the reminders of a step, oldest first.
func (h *harness) reminders(step tasker.ID) (list []string) {
	h.Helper()
	h.Must(h.Admin().QueryRow(h.Context(), `
		SELECT coalesce(array_agg(data ->> 'summary' ORDER BY position), '{}') FROM tasker.messages
		WHERE topic = 'step.reminder' AND subject_kind = 'step' AND subject_id = $1 AND data ->> 'task' IS NOT NULL`, step).Scan(&list))
	return list
}

// wantReminders expects so many reminders of a step, and the next one after some time; none
// when that is zero.
func (h *harness) wantReminders(task tasker.ID, name string, sent int, next time.Duration) {
	h.Helper()
	s := h.step(task, name)
	if s.Reminders != sent || len(h.reminders(s.UUID)) != sent {
		h.Errorf("%s: %d reminders, and %d messages: %q; want %d", name, s.Reminders, len(h.reminders(s.UUID)), h.reminders(s.UUID), sent)
	}
	if (s.RemindAt == nil) != (next == 0) {
		h.Fatalf("%s: the next reminder is at %v, want one in %s", name, s.RemindAt, next)
	}
	if next == 0 {
		return
	}
	if left := time.Until(*s.RemindAt) - next; left > time.Second || left < -time.Minute {
		h.Errorf("%s: the next reminder is in %s, want %s", name, time.Until(*s.RemindAt), next)
	}
}

// People are reminded of a step that waits for an answer, until somebody answers; a step that
// waits anew has its reminders again.
func TestPeopleAreRemindedOfAWait(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	asked, decided := remindedStep(timed("", external("answer", "ask"))), remindedStep(external("permit"))
	decided.When = "true"
	h.Template("approve", enginetest.Step("ask"), asked, decided, remindedStep(external("sign")))
	task := h.Create("approve")
	h.tick()
	h.wantReminders(task, "sign", 0, time.Hour)
	h.wantReminders(task, "permit", 0, time.Hour)
	h.wantReminders(task, "answer", 0, 0)
	h.accepted(success(h.claimOne("ask"), `1`))
	h.wantReminders(task, "answer", 0, time.Hour)

	h.later("1 hour")
	for _, name := range []string{"answer", "permit", "sign"} {
		h.wantReminders(task, name, 1, time.Hour)
	}
	h.tick()
	h.wantReminders(task, "answer", 1, time.Hour)
	answer := h.step(task, "answer").UUID
	if s := h.reminders(answer)[0]; !strings.Contains(s, "step answer of approve has waited for an answer for 60 minutes; its timeout is at 20") {
		t.Errorf("the reminder says %q", s)
	}
	h.later("1 hour")
	h.wantReminders(task, "answer", 2, 0)
	h.wantStep(task, "answer", tasker.StepPending, 0)
	if s := h.reminders(answer)[1]; !strings.Contains(s, "for an answer for 2 hours") {
		t.Errorf("the reminder says %q", s)
	}
	_, err := h.Engine.CompleteExternal(t.Context(), task, answer, tasker.Outcome{Failure: &tasker.Failure{Message: "no"}}, "desk")
	h.Must(err)
	_, err = h.Engine.OperateStep(t.Context(), task, answer, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "asked again", Actor: "ann"})
	h.Must(err)
	if s := h.step(task, "answer"); s.Reminders != 0 || s.RemindAt == nil {
		t.Errorf("after a reset: %d reminders, the next at %v", s.Reminders, s.RemindAt)
	}
}

// What is over reminds nobody: a step that was answered, and one of a task that was cancelled.
func TestNobodyIsRemindedOfWhatIsOver(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approve", remindedStep(external("answer")))
	answered, cancelled, missed := h.Create("approve"), h.Create("approve"), h.Create("approve")
	_, err := h.Engine.CompleteExternal(t.Context(), answered, h.step(answered, "answer").UUID, tasker.Outcome{Success: true}, "desk")
	h.Must(err)
	h.Must(h.Engine.CancelTask(t.Context(), cancelled, "ann", "not needed"))
	h.later("3 hours")
	h.wantReminders(answered, "answer", 0, 0)
	h.wantReminders(cancelled, "answer", 0, 0)
	s := h.step(missed, "answer") // no server ran when the first one was due: one message says so
	if list := h.reminders(s.UUID); len(list) != 1 || s.Reminders != 2 || s.RemindAt != nil || !strings.Contains(list[0], "for 3 hours") {
		t.Errorf("%d reminders, the next at %v: %q", s.Reminders, s.RemindAt, list)
	}
}

// Servers remind people once, and a step of which they cannot be reminded now delays no other.
func TestSeveralServersRemindOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approve", remindedStep(external("answer")))
	var tasks []tasker.ID
	for range 30 {
		tasks = append(tasks, h.Create("approve"))
	}
	h.poison("UPDATE ON tasker.workflow_steps", fmt.Sprintf("OLD.task_uuid = '%s' AND NEW.reminders > OLD.reminders", tasks[7]))
	h.Exec(`UPDATE tasker.workflow_steps SET remind_at = remind_at - interval '1 hour' WHERE remind_at IS NOT NULL`)
	var both sync.WaitGroup
	for _, e := range []*engine.Engine{h.Engine, newEngine(h.DB, engine.Options{})} {
		both.Go(func() {
			for range 20 {
				_, _ = e.Tick(t.Context()) // the step that cannot be moved is an error
			}
		})
	}
	both.Wait()
	h.retryDeferred() // what was not reached in time
	for i, task := range tasks {
		if i != 7 {
			h.wantReminders(task, "answer", 1, time.Hour)
		}
	}
	if s := h.step(tasks[7], "answer"); s.Reminders != 0 || len(h.reminders(s.UUID)) != 0 {
		t.Errorf("the step that cannot be moved has %d reminders, and %d messages", s.Reminders, len(h.reminders(s.UUID)))
	}
	h.heal()
	h.retryDeferred()
	h.wantReminders(tasks[7], "answer", 1, time.Hour)
}
