package engine_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest/fixture"
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
	fixture.WaitsOver(h, h.Admin(), 7*24*time.Hour)
	h.Tick()
	h.Tick()
}

// wantWait expects an external step to wait for a week from now on.
func (h *harness) wantWait(task tasker.ID, name string) {
	h.Helper()
	s := h.Step(task, name)
	require(h, s.State == tasker.StepPending && s.WaitUntil != nil,
		"%s is %s and waits until %v", name, s.State, s.WaitUntil)
	left := time.Until(*s.WaitUntil) - week*time.Second
	check(h, left <= time.Second && left >= -time.Minute, "%s waits until %s", name, s.WaitUntil)
}

func TestUnansweredStepFails(t *testing.T) {
	h := newHarness(t)
	h.Template("approve", enginetest.Step("ask"), timed("", external("answer", "ask")), enginetest.Step("go", "answer"))
	task := h.Create("approve")
	if s := h.Step(task, "answer"); s.WaitUntil != nil {
		t.Errorf("it waits until %v before it is asked", s.WaitUntil)
	}
	h.Complete("ask")
	h.wantWait(task, "answer")
	h.WantState(task, tasker.TaskWaitingForDependencies)
	h.Tick()
	h.WantStep(task, "answer", tasker.StepPending, 0)
	h.aWeekLater()
	h.WantState(task, tasker.TaskError)
	s := h.Step(task, "answer")
	if s.State != tasker.StepError || s.WaitUntil != nil || s.NextRetryAt != nil || !strings.Contains(string(s.Error), "no answer within 168h0m0s (timeout_seconds)") {
		t.Errorf("the step is %s, waits until %v: %s", s.State, s.WaitUntil, s.Error)
	}
	if e := h.Entry(task); e.DetailCode != tasker.ExternalTimeout || e.ResolutionStatus != tasker.EntryPending {
		t.Errorf("the investigation is %s, %s", e.DetailCode, e.ResolutionStatus)
	}
	_, err := h.Engine.CompleteExternal(t.Context(), task, s.UUID, tasker.Outcome{Success: true}, "late")
	h.WantCode(err, tasker.Conflict, "is already error")
	_, err = h.Engine.OperateStep(t.Context(), task, s.UUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "asked again", Actor: "ann"})
	h.Must(err)
	h.wantWait(task, "answer")
	_, err = h.Engine.CompleteExternal(t.Context(), task, s.UUID, tasker.Outcome{Success: true, Result: json.RawMessage(`"yes"`)}, "desk")
	h.Must(err)
	if s := h.Step(task, "answer"); s.WaitUntil != nil {
		t.Errorf("after the answer it waits until %v", s.WaitUntil)
	}
	h.Complete("go")
	h.aWeekLater()
	h.WantState(task, tasker.TaskComplete)
}

func TestUnansweredStepCanComplete(t *testing.T) {
	h := newHarness(t)
	h.Template("approve", timed(tasker.TimeoutCompletes, external("answer")), when("!results.answer.approved", enginetest.Step("no", "answer")),
		when("results.answer.approved", enginetest.Step("yes", "answer")))
	task := h.Create("approve")
	h.wantWait(task, "answer")
	h.aWeekLater()
	h.WantStep(task, "answer", tasker.StepComplete, 0)
	h.wantSkipped(task, "yes", "condition is false")
	a := h.ClaimOne("no")
	got := strings.ReplaceAll(string(a.DependencyResults["answer"]), " ", "")
	check(t, got == `{"approved":false}`, "the next step is given %s", got)
	h.Accepted(success(a, `1`))
	h.WantState(task, tasker.TaskComplete)
	list := h.StepMoves(task, "answer")
	check(t, len(list) == 1 && list[0].Event == "elapse" && strings.Contains(list[0].Reason, "no answer"),
		"the history is %+v", list)
}

func TestUnansweredStepCanBeSkipped(t *testing.T) {
	h := newHarness(t)
	h.Template("approve", timed(tasker.TimeoutSkips, external("answer")), enginetest.Step("go", "answer"), joined(tasker.JoinNoneFailed, enginetest.Step("end", "answer", "go")))
	task := h.Create("approve")
	h.aWeekLater()
	h.wantSkipped(task, "answer", "no answer within")
	h.wantSkipped(task, "go", "answer was skipped")
	h.Complete("end")
	h.WantState(task, tasker.TaskComplete)
}

func TestWaitBeginsWhenTheStepIsDecided(t *testing.T) {
	h := newHarness(t)
	h.Template("approve", when("context.ask", timed("", external("answer"))), when("!context.ask", enginetest.Step("other")))
	task := h.create("approve", `{"ask": true}`)
	if s := h.Step(task, "answer"); s.WaitUntil != nil {
		t.Errorf("it waits until %v before it is decided", s.WaitUntil)
	}
	h.Tick()
	h.wantWait(task, "answer")
	h.Cancel(task)
	h.Template("later", timed("", external("answer")))
	task = h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "later", StartAt: time.Now().Add(time.Hour)})
	if s := h.Step(task, "answer"); s.WaitUntil == nil || time.Until(*s.WaitUntil) < (week+3500)*time.Second {
		t.Errorf("it waits until %v", s.WaitUntil)
	}
	h.Cancel(task)
	h.WantCount(0, `SELECT count(*) FROM tasker.workflow_steps WHERE wait_until IS NOT NULL`)
}

func TestWaitingStepIsNotStaleBeforeItsTimeout(t *testing.T) {
	h := newHarness(t)
	h.Template("approve", timed("", external("answer")))
	h.Template("after", enginetest.Step("ask"), timed("", external("answer", "ask")))
	h.Template("without", external("answer"))
	h.RegisterTemplate(tasker.Template{
		Namespace: h.Space, Name: "strict", Version: "1.0.0", Steps: []tasker.StepTemplate{enginetest.Step("ask"), timed("", external("answer", "ask"))},
		Lifecycle: tasker.Lifecycle{MaxWaitingForDependenciesMinutes: 30},
	})
	for name, c := range map[string]struct{ least, most time.Duration }{
		"approve": {week * time.Second, 4 * week * time.Second}, "after": {week * time.Second, 4 * week * time.Second}, "without": {0, 2 * time.Hour}, "strict": {0, 31 * time.Minute},
	} {
		task := h.Create(name)
		h.Succeed(h.Claim()...)
		var stale time.Duration
		h.Must(h.Admin().QueryRow(t.Context(), `SELECT stale_at - state_since FROM tasker.tasks WHERE task_uuid = $1`, task).Scan(&stale))
		check(t, stale >= c.least && stale <= c.most,
			"%s is stale after %s, want between %s and %s", name, stale, c.least, c.most)
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
	h.Tick()
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
	s := h.Step(task, name)
	if s.Reminders != sent || len(h.reminders(s.UUID)) != sent {
		h.Errorf("%s: %d reminders, and %d messages: %q; want %d", name, s.Reminders, len(h.reminders(s.UUID)), h.reminders(s.UUID), sent)
	}
	require(h, (s.RemindAt == nil) == (next == 0),
		"%s: the next reminder is at %v, want one in %s", name, s.RemindAt, next)
	if next == 0 {
		return
	}
	if left := time.Until(*s.RemindAt) - next; left > time.Second || left < -time.Minute {
		h.Errorf("%s: the next reminder is in %s, want %s", name, time.Until(*s.RemindAt), next)
	}
}

func TestWaitingStepSendsReminders(t *testing.T) {
	h := newHarness(t)
	asked, decided := remindedStep(timed("", external("answer", "ask"))), remindedStep(external("permit"))
	decided.When = "true"
	h.Template("approve", enginetest.Step("ask"), asked, decided, remindedStep(external("sign")))
	task := h.Create("approve")
	h.Tick()
	h.wantReminders(task, "sign", 0, time.Hour)
	h.wantReminders(task, "permit", 0, time.Hour)
	h.wantReminders(task, "answer", 0, 0)
	h.Complete("ask")
	h.wantReminders(task, "answer", 0, time.Hour)

	h.later("1 hour")
	for _, name := range []string{"answer", "permit", "sign"} {
		h.wantReminders(task, name, 1, time.Hour)
	}
	h.Tick()
	h.wantReminders(task, "answer", 1, time.Hour)
	answer := h.Step(task, "answer").UUID
	if s := h.reminders(answer)[0]; !strings.Contains(s, "step answer of approve has waited for an answer for 60 minutes; its timeout is at 20") {
		t.Errorf("the reminder says %q", s)
	}
	h.later("1 hour")
	h.wantReminders(task, "answer", 2, 0)
	h.WantStep(task, "answer", tasker.StepPending, 0)
	if s := h.reminders(answer)[1]; !strings.Contains(s, "for an answer for 2 hours") {
		t.Errorf("the reminder says %q", s)
	}
	_, err := h.Engine.CompleteExternal(t.Context(), task, answer, tasker.Outcome{Failure: &tasker.Failure{Message: "no"}}, "desk")
	h.Must(err)
	_, err = h.Engine.OperateStep(t.Context(), task, answer, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "asked again", Actor: "ann"})
	h.Must(err)
	if s := h.Step(task, "answer"); s.Reminders != 0 || s.RemindAt == nil {
		t.Errorf("after a reset: %d reminders, the next at %v", s.Reminders, s.RemindAt)
	}
}

func TestEndedStepSendsNoReminders(t *testing.T) {
	h := newHarness(t)
	h.Template("approve", remindedStep(external("answer")))
	answered, cancelled, missed := h.Create("approve"), h.Create("approve"), h.Create("approve")
	h.Answer(answered, "answer", tasker.Outcome{Success: true})
	h.Cancel(cancelled)
	h.later("3 hours")
	h.wantReminders(answered, "answer", 0, 0)
	h.wantReminders(cancelled, "answer", 0, 0)
	s := h.Step(missed, "answer") // no server ran when the first one was due: one message says so
	if list := h.reminders(s.UUID); len(list) != 1 || s.Reminders != 2 || s.RemindAt != nil || !strings.Contains(list[0], "for 3 hours") {
		t.Errorf("%d reminders, the next at %v: %q", s.Reminders, s.RemindAt, list)
	}
}
