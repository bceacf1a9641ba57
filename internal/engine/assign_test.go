package engine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/enginetest"
)

// asked is an external step that a person answers.
func asked(change func(*tasker.StepTemplate), dependencies ...string) tasker.StepTemplate {
	s := external("answer", dependencies...)
	change(&s)
	return s
}

// inbox returns what waits for people, as the assignees in their order.
func (h *harness) inbox(f tasker.InboxFilter) (list []string) {
	h.Helper()
	f.Limit = 10
	found, more, err := h.Engine.Inbox(h.Context(), f)
	h.Must(err)
	if more {
		h.Error("there is more")
	}
	for _, s := range found {
		list = append(list, s.Assignee)
	}
	return list
}

func (h *harness) wantInbox(what string, want ...string) {
	h.Helper()
	if got := h.inbox(tasker.InboxFilter{}); fmt.Sprint(got) != fmt.Sprint(want) {
		h.Errorf("%s: %q wait, want %q", what, got, want)
	}
}

// wantCode expects an error of a code; what it was about is in the report.
func (h *harness) wantCode(err error, want tasker.Code, about string) {
	h.Helper()
	if tasker.CodeOf(err) != want {
		h.Errorf("%s: %v, want %s", about, err, want)
	}
}

// said returns the summaries of the messages of a topic about a step.
func (h *harness) said(topic string, step tasker.ID) (list []string) {
	h.Helper()
	h.Must(h.Admin().QueryRow(h.Context(), `
		SELECT coalesce(array_agg(data ->> 'summary' ORDER BY position), '{}') FROM tasker.messages WHERE topic = $1 AND subject_id = $2`, topic, step).Scan(&list))
	return list
}

// A step that a person answers is in the inbox while it waits, whatever ends the wait, and again
// after a reset.
func TestHumanStepsAreInTheInboxWhileTheyWait(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(h *harness, task tasker.ID, step tasker.Step){
		"answered": func(h *harness, task tasker.ID, step tasker.Step) {
			_, err := h.Engine.CompleteExternal(h.Context(), task, step.UUID, tasker.Outcome{Success: true, Result: json.RawMessage(`1`)}, "ann")
			h.Must(err)
		},
		"timeout": func(h *harness, _ tasker.ID, _ tasker.Step) { h.aWeekLater() },
		"cancelled": func(h *harness, task tasker.ID, _ tasker.Step) {
			h.Must(h.Engine.CancelTask(h.Context(), task, "ann", "why"))
		},
		"resolved": func(h *harness, task tasker.ID, step tasker.Step) {
			_, err := h.Engine.OperateStep(h.Context(), task, step.UUID, tasker.ActionRequest{Action: tasker.ResolveManually, Actor: "ann", Reason: "why"})
			h.Must(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.Template("approve", enginetest.Step("ask"), timed("", asked(func(s *tasker.StepTemplate) { s.Assignee = "ann" }, "ask")))
			task := h.Create("approve")
			h.wantInbox("before it is asked")
			h.accepted(success(h.claimOne("ask"), `1`))
			h.tick()
			h.wantInbox("waiting", "ann")
			step := h.step(task, "answer")
			if step.Assignee != "ann" {
				t.Errorf("the step is assigned to %q", step.Assignee)
			}
			if got := h.said(tasker.StepWaitingTopic, step.UUID); len(got) != 1 {
				t.Errorf("told %q", got)
			}
			h.wantWait(task, "answer")
			end(h, task, step)
			h.wantInbox(name)
			if name != "timeout" {
				return
			}
			_, err := h.Engine.Assign(h.Context(), tasker.StepRef{TaskUUID: task, StepUUID: step.UUID}, tasker.AssignRequest{Assignee: "bob", Actor: "ann"})
			h.wantCode(err, tasker.Conflict, "")
			_, err = h.Engine.OperateStep(h.Context(), task, step.UUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "ann", Reason: "once more"})
			h.Must(err)
			h.wantInbox("reset", "ann")
			h.wantWait(task, "answer")
			found, _, err := h.Engine.Inbox(h.Context(), tasker.InboxFilter{Limit: 1})
			h.Must(err)
			if due := h.step(task, "answer").WaitUntil; found[0].DueAt == nil || !found[0].DueAt.Equal(*due) {
				t.Errorf("it is due at %v, and waits until %v", found[0].DueAt, due)
			}
		})
	}
}

// Who is to answer is said by an expression; one that names nobody fails the decision.
func TestAnExpressionSaysWhoIsToAnswer(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approve", asked(func(s *tasker.StepTemplate) { s.AssigneeFrom = `context.who` }))
	for _, tt := range []struct{ who, want, fault string }{
		{`"group:finance"`, "[group:finance]", ""},
		{`""`, "[]", ""},
		{`4711`, "[4711]", ""},
		{`true`, "", "must be a string that names a person or a group"},
		{`"ann lee"`, "", "the assignee has a blank"},
		{`"group:"`, "", "the assignee is empty"},
	} {
		task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "approve", Context: json.RawMessage(`{"who": ` + tt.who + `}`)})
		h.tick()
		if tt.fault != "" {
			h.wantStep(task, "answer", tasker.StepError, 0)
			if got := string(h.step(task, "answer").Error); !strings.Contains(got, tt.fault) {
				t.Errorf("%s: %s, want %s", tt.who, got, tt.fault)
			}
			continue
		}
		if got := h.inbox(tasker.InboxFilter{}); fmt.Sprint(got) != tt.want {
			t.Errorf("%s: %q wait, want %s", tt.who, got, tt.want)
		}
		h.Must(h.Engine.CancelTask(h.Context(), task, "ann", "why"))
	}
}

// A step is assigned to others while it waits; each change is in its history, and people are told.
func TestAStepIsAssigned(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("plain", external("answer"))
	h.Template("later", enginetest.Step("ask"), external("answer", "ask"))
	task := h.Create("plain")
	step := tasker.StepRef{TaskUUID: task, StepUUID: h.step(task, "answer").UUID}
	h.wantInbox("a step for no person")
	assign := func(to string) tasker.HumanStep {
		t.Helper()
		got, err := h.Engine.Assign(h.Context(), step, tasker.AssignRequest{Assignee: to, Actor: "ann", Reason: "holiday"})
		h.Must(err)
		return got
	}
	if got := assign("bob"); got.Assignee != "bob" || got.AssignedBy != "ann" || !got.Waiting {
		t.Errorf("%+v", got)
	}
	assign("bob")
	assign("group:finance")
	assign("")
	h.wantInbox("assigned to nobody", "")
	d, err := h.Engine.HumanStep(h.Context(), step)
	h.Must(err)
	var got []string
	for _, c := range d.History {
		got = append(got, c.Event+" "+c.Assignee)
	}
	if want := "[unassigned  assigned group:finance assigned bob]"; fmt.Sprint(got) != want {
		t.Errorf("the history has %s, want %s", got, want)
	}
	if said := h.said(tasker.StepAssignedTopic, step.StepUUID); len(said) != 3 {
		t.Errorf("told %q", said)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action IN ('step.assigned', 'step.unassigned') AND subject = $1 AND actor = 'ann'`, step.StepUUID.String()); n != 3 {
		t.Errorf("%d rows in the audit log", n)
	}
	for name, r := range map[string]tasker.AssignRequest{"assignee": {Assignee: "a b", Actor: "ann"}, "by": {Assignee: "bob"}} {
		_, err := h.Engine.Assign(h.Context(), step, r)
		h.wantCode(err, tasker.Invalid, name)
	}
	later := h.Create("later")
	for name, want := range map[string]tasker.Code{"ask": tasker.Conflict, "answer": tasker.Conflict} {
		_, err := h.Engine.Assign(h.Context(), tasker.StepRef{TaskUUID: later, StepUUID: h.step(later, name).UUID}, tasker.AssignRequest{Assignee: "bob", Actor: "ann"})
		h.wantCode(err, want, name)
	}
}

// Nobody answers in spite of reminders: somebody else is to.
func TestAStepIsEscalated(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approve", asked(func(s *tasker.StepTemplate) {
		*s = remindedStep(*s)
		s.Assignee, s.EscalateTo, s.EscalateAfter = "ann", "group:managers", 1
	}))
	task := h.Create("approve")
	h.tick()
	h.wantInbox("before a reminder", "ann")
	h.later("1 hour")
	h.wantInbox("after a reminder", "group:managers")
	step := h.step(task, "answer")
	if got := h.reminders(step.UUID); len(got) != 1 || got[0] != h.Space+": step answer of approve has waited for an answer of ann for 60 minutes; it is assigned to group:managers now" {
		t.Errorf("told %q", got)
	}
	_, err := h.Engine.Assign(h.Context(), tasker.StepRef{TaskUUID: task, StepUUID: step.UUID}, tasker.AssignRequest{Assignee: "bob", Actor: "ann"})
	h.Must(err)
	h.later("1 hour")
	h.wantInbox("it is escalated once", "bob")

	// So is one that was nobody's in particular, and not in the inbox.
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "r"))
	h.Template("plain", asked(func(s *tasker.StepTemplate) {
		*s = remindedStep(*s)
		s.EscalateTo, s.EscalateAfter = "group:managers", 1
	}))
	plain := h.Create("plain")
	h.later("1 hour")
	h.wantInbox("nobody's", "group:managers")
	if a, err := h.DB.HumanStep(t.Context(), tasker.StepRef{TaskUUID: plain, StepUUID: h.step(plain, "answer").UUID}); err != nil || a.EscalatedAt == nil {
		t.Errorf("it is not escalated: %+v, %v", a, err)
	}
}

// Of a task that was written off no answer is taken: nobody is asked for one.
func TestNobodyIsAskedOfAWrittenOffTask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approve", enginetest.Once(enginetest.Step("go")), asked(func(s *tasker.StepTemplate) { *s = remindedStep(*s); s.Assignee = "ann" }))
	task := h.Create("approve")
	h.tick()
	h.wantInbox("before", "ann")
	h.accepted(failure(h.claimOne("go"), false))
	h.wantInbox("in error", "ann")
	h.giveUp(task)
	h.wantInbox("written off")
	h.later("1 hour")
	h.wantReminders(task, "answer", 0, 0)
}

// The inbox is a list by what is due, of the namespaces of the caller, from place to place.
func TestTheInboxIsPaged(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approve", asked(func(s *tasker.StepTemplate) { s.AssigneeFrom = `context.who` }))
	h.Template("refund", timed("", asked(func(s *tasker.StepTemplate) { s.AssigneeFrom = `context.who` })))
	for i, who := range []string{"ann", "bob", "", "ann"} {
		h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: []string{"approve", "refund"}[i%2], Context: json.RawMessage(`{"who": "` + who + `"}`)})
		h.tick()
	}
	for name, tt := range map[string]struct {
		f    tasker.InboxFilter
		want string
	}{
		"all":                 {tasker.InboxFilter{}, "[bob ann ann ]"},
		"assignee":            {tasker.InboxFilter{Assignees: []string{"ann"}}, "[ann ann]"},
		"assignees":           {tasker.InboxFilter{Assignees: []string{"", "bob"}}, "[bob ]"},
		"template":            {tasker.InboxFilter{Template: "approve"}, "[ann ]"},
		"assignee, template":  {tasker.InboxFilter{Template: "approve", Assignees: []string{"ann"}}, "[ann]"},
		"namespace":           {tasker.InboxFilter{Namespace: h.Space}, "[bob ann ann ]"},
		"another namespace":   {tasker.InboxFilter{Namespace: "attic"}, "[]"},
		"due":                 {tasker.InboxFilter{DueBefore: new(time.Now().Add(8 * 24 * time.Hour))}, "[bob ann]"},
		"overdue":             {tasker.InboxFilter{Overdue: true}, "[]"},
		"nobody of the names": {tasker.InboxFilter{Assignees: []string{"carol"}}, "[]"},
	} {
		if got := h.inbox(tt.f); fmt.Sprint(got) != tt.want {
			t.Errorf("%s: %q, want %s", name, got, tt.want)
		}
	}
	var seen []string
	f := tasker.InboxFilter{Limit: 1}
	for more := true; more; {
		list, again, err := h.Engine.Inbox(h.Context(), f)
		h.Must(err)
		for _, s := range list {
			place, err := tasker.ParseInboxCursor(tasker.InboxCursor{DueAt: s.DueAt, Step: s.StepUUID}.String())
			h.Must(err)
			seen, f.After = append(seen, s.Assignee), &place
		}
		more = again
	}
	if fmt.Sprint(seen) != "[bob ann ann ]" {
		t.Errorf("the pages have %q", seen)
	}
	for _, scope := range []access.Scope{access.Namespaces("attic"), access.Namespaces()} {
		if list, _, err := h.Engine.Inbox(access.WithScope(h.Context(), scope), tasker.InboxFilter{Limit: 9}); err != nil || len(list) != 0 {
			t.Errorf("another namespace: %v, %v", list, err)
		}
	}
	_, _, err := h.Engine.Inbox(h.Context(), tasker.InboxFilter{Assignees: make([]string, tasker.MaxInboxAssignees+1)})
	h.wantCode(err, tasker.Invalid, "assignees")
	for _, text := range []string{"", "x~y", "~x", "2026-01-01~" + task0, "0001-01-01T00:00:00Z~" + task0} {
		if _, err := tasker.ParseInboxCursor(text); tasker.CodeOf(err) != tasker.Invalid {
			t.Errorf("%q: %v", text, err)
		}
	}
}

const task0 = "00000000-0000-7000-8000-000000000000"

// An answer is what the form of the step says.
func TestAnAnswerMatchesItsForm(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approve", asked(func(s *tasker.StepTemplate) {
		s.Form = json.RawMessage(`{"type": "object", "required": ["approved"], "properties": {"approved": {"type": "boolean"}}}`)
	}))
	task := h.Create("approve")
	h.tick()
	h.wantInbox("a step with a form", "")
	step := h.step(task, "answer").UUID
	answer := func(o tasker.Outcome) error {
		_, err := h.Engine.CompleteExternal(h.Context(), task, step, o, "ann")
		return err
	}
	for _, result := range []string{`{}`, `{"approved": "yes"}`, `null`, ``} {
		h.wantCode(answer(tasker.Outcome{Success: true, Result: json.RawMessage(result)}), tasker.Invalid, result)
	}
	h.wantStep(task, "answer", tasker.StepPending, 0)
	h.Must(answer(tasker.Outcome{Success: true, Result: json.RawMessage(`{"approved": false}`)}))
	h.Must(answer(tasker.Outcome{Success: true, Result: json.RawMessage(`{"approved": false}`)}))
	h.wantStep(task, "answer", tasker.StepComplete, 0)
	task = h.Create("approve")
	h.tick()
	step = h.step(task, "answer").UUID
	h.Must(answer(tasker.Outcome{Failure: &tasker.Failure{Message: "cannot say"}}))
	h.wantStep(task, "answer", tasker.StepError, 0)
}
