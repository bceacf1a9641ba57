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
	check(h, !more, "there is more")
	for _, s := range found {
		list = append(list, string(s.Assignee))
	}
	return list
}

func (h *harness) wantInbox(what string, want ...string) {
	h.Helper()
	got := h.inbox(tasker.InboxFilter{})
	check(h, fmt.Sprint(got) == fmt.Sprint(want), "%s: %q wait, want %q", what, got, want)
}

// said returns the summaries of the messages of a topic about a step.
func (h *harness) said(topic string, step tasker.ID) (list []string) {
	h.Helper()
	h.Must(h.Admin().QueryRow(h.Context(), `
		SELECT coalesce(array_agg(data ->> 'summary' ORDER BY position), '{}') FROM tasker.messages WHERE topic = $1 AND subject_id = $2`, topic, step).Scan(&list))
	return list
}

func TestInboxContainsWaitingHumanSteps(t *testing.T) {
	h := newHarness(t)
	for name, end := range map[string]func(h *harness, task tasker.ID, step tasker.Step){
		"answered": func(h *harness, task tasker.ID, step tasker.Step) {
			_, err := h.Engine.CompleteExternal(h.Context(), task, step.UUID, tasker.Outcome{Success: true, Result: json.RawMessage(`1`)}, "ann")
			h.Must(err)
		},
		"timeout": func(h *harness, _ tasker.ID, _ tasker.Step) { h.aWeekLater() },
		"cancelled": func(h *harness, task tasker.ID, _ tasker.Step) {
			h.Cancel(task)
		},
		"resolved": func(h *harness, task tasker.ID, step tasker.Step) {
			_, err := h.Engine.OperateStep(h.Context(), task, step.UUID, tasker.ActionRequest{Action: tasker.ResolveManually, Actor: "ann", Reason: "why"})
			h.Must(err)
		},
	} {
		h.each(name, func(h *harness) {
			h.Template("approve", enginetest.Step("ask"), timed("", asked(func(s *tasker.StepTemplate) { s.Assignee = "ann" }, "ask")))
			task := h.Create("approve")
			h.wantInbox("before it is asked")
			h.Complete("ask")
			h.Tick()
			h.wantInbox("waiting", "ann")
			step := h.Step(task, "answer")
			equal(h, "the step is assigned to", step.Assignee, "ann")
			got := h.said(tasker.StepWaitingTopic, step.UUID)
			check(h, len(got) == 1, "told %q", got)
			h.wantWait(task, "answer")
			end(h, task, step)
			h.wantInbox(name)
			if name != "timeout" {
				return
			}
			defer h.Cancel(task)
			_, err := h.Engine.Assign(h.Context(), tasker.StepRef{TaskUUID: task, StepUUID: step.UUID}, tasker.AssignRequest{Assignee: "bob", Actor: "ann"})
			h.WantCode(err, tasker.Conflict)
			_, err = h.Engine.OperateStep(h.Context(), task, step.UUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "ann", Reason: "once more"})
			h.Must(err)
			h.wantInbox("reset", "ann")
			h.wantWait(task, "answer")
			found, _, err := h.Engine.Inbox(h.Context(), tasker.InboxFilter{Limit: 1})
			h.Must(err)
			if due := h.Step(task, "answer").WaitUntil; found[0].DueAt == nil || !found[0].DueAt.Equal(*due) {
				h.Errorf("it is due at %v, and waits until %v", found[0].DueAt, due)
			}
		})
	}
}

func TestExpressionDeterminesTheAssignee(t *testing.T) {
	h := newHarness(t)
	h.Template("approve", asked(func(s *tasker.StepTemplate) { s.AssigneeFrom = `context.who` }))
	for _, tt := range []struct{ who, want, fault string }{
		{`"group:finance"`, "[group:finance]", ""},
		{`""`, "[]", ""},
		{`4711`, "[4711]", ""},
		{`true`, "", "must be a string that names a person or a group"},
		{`"ann lee"`, "", "contains a space"},
		{`"group:"`, "", "the assignee is empty"},
	} {
		task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "approve", Context: json.RawMessage(`{"who": ` + tt.who + `}`)})
		h.Tick()
		if tt.fault != "" {
			h.WantStep(task, "answer", tasker.StepError, 0)
			if got := string(h.Step(task, "answer").Error); !strings.Contains(got, tt.fault) {
				t.Errorf("%s: %s, want %s", tt.who, got, tt.fault)
			}
			continue
		}
		if got := h.inbox(tasker.InboxFilter{}); fmt.Sprint(got) != tt.want {
			t.Errorf("%s: %q wait, want %s", tt.who, got, tt.want)
		}
		h.Cancel(task)
	}
}

func TestWaitingStepCanBeReassigned(t *testing.T) {
	h := newHarness(t)
	h.Template("plain", external("answer"))
	h.Template("later", enginetest.Step("ask"), external("answer", "ask"))
	task := h.Create("plain")
	step := tasker.StepRef{TaskUUID: task, StepUUID: h.Step(task, "answer").UUID}
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
		got = append(got, c.Event+" "+string(c.Assignee))
	}
	if want := "[unassigned  assigned group:finance assigned bob]"; fmt.Sprint(got) != want {
		t.Errorf("the history has %s, want %s", got, want)
	}
	said := h.said(tasker.StepAssignedTopic, step.StepUUID)
	check(t, len(said) == 3, "told %q", said)
	h.WantCount(3, `SELECT count(*) FROM tasker.audit_events WHERE action IN ('step.assigned', 'step.unassigned') AND subject = $1 AND actor = 'ann'`, step.StepUUID.String())
	for _, r := range map[string]tasker.AssignRequest{"assignee": {Assignee: "a b", Actor: "ann"}, "by": {Assignee: "bob"}} {
		h.WantCode(errOf(h.Engine.Assign(h.Context(), step, r)), tasker.Invalid)
	}
	later := h.Create("later")
	for name, want := range map[string]tasker.Code{"ask": tasker.Conflict, "answer": tasker.Conflict} {
		_, err := h.Engine.Assign(h.Context(), tasker.StepRef{TaskUUID: later, StepUUID: h.Step(later, name).UUID}, tasker.AssignRequest{Assignee: "bob", Actor: "ann"})
		h.WantCode(err, want)
	}
}

func TestUnansweredStepIsEscalated(t *testing.T) {
	h := newHarness(t)
	h.Template("approve", asked(func(s *tasker.StepTemplate) {
		*s = remindedStep(*s)
		s.Assignee, s.EscalateTo, s.EscalateAfter = "ann", "group:managers", 1
	}))
	task := h.Create("approve")
	h.Tick()
	h.wantInbox("before a reminder", "ann")
	h.later("1 hour")
	h.wantInbox("after a reminder", "group:managers")
	step := h.Step(task, "answer")
	if got := h.reminders(step.UUID); len(got) != 1 || got[0] != h.Space+": step answer of approve has waited for an answer of ann for 60 minutes; it is now assigned to group:managers" {
		t.Errorf("told %q", got)
	}
	_, err := h.Engine.Assign(h.Context(), tasker.StepRef{TaskUUID: task, StepUUID: step.UUID}, tasker.AssignRequest{Assignee: "bob", Actor: "ann"})
	h.Must(err)
	h.later("1 hour")
	h.wantInbox("it is escalated once", "bob")

	// So is one that was nobody's in particular, and not in the inbox.
	h.Cancel(task)
	h.Template("plain", asked(func(s *tasker.StepTemplate) {
		*s = remindedStep(*s)
		s.EscalateTo, s.EscalateAfter = "group:managers", 1
	}))
	plain := h.Create("plain")
	h.later("1 hour")
	h.wantInbox("nobody's", "group:managers")
	if a, err := h.DB.HumanStep(t.Context(), tasker.StepRef{TaskUUID: plain, StepUUID: h.Step(plain, "answer").UUID}); err != nil || a.EscalatedAt == nil {
		t.Errorf("it is not escalated: %+v, %v", a, err)
	}
}

func TestWrittenOffTaskLeavesTheInbox(t *testing.T) {
	h := newHarness(t)
	h.Template("approve", enginetest.Once(enginetest.Step("go")), asked(func(s *tasker.StepTemplate) { *s = remindedStep(*s); s.Assignee = "ann" }))
	task := h.Create("approve")
	h.Tick()
	h.wantInbox("before", "ann")
	h.Accepted(failure(h.ClaimOne("go"), false))
	h.wantInbox("in error", "ann")
	h.Abandon(task)
	h.wantInbox("written off")
	h.later("1 hour")
	h.wantReminders(task, "answer", 0, 0)
}

func TestInboxIsFilteredAndPaged(t *testing.T) {
	h := newHarness(t)
	h.Template("approve", asked(func(s *tasker.StepTemplate) { s.AssigneeFrom = `context.who` }))
	h.Template("refund", timed("", asked(func(s *tasker.StepTemplate) { s.AssigneeFrom = `context.who` })))
	for i, who := range []string{"ann", "bob", "", "ann"} {
		h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: []string{"approve", "refund"}[i%2], Context: json.RawMessage(`{"who": "` + who + `"}`)})
		h.Tick()
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
		got := h.inbox(tt.f)
		check(t, fmt.Sprint(got) == tt.want, "%s: %q, want %s", name, got, tt.want)
	}
	var seen []string
	f := tasker.InboxFilter{Limit: 1}
	for more := true; more; {
		list, again, err := h.Engine.Inbox(h.Context(), f)
		h.Must(err)
		for _, s := range list {
			place, err := tasker.ParseInboxCursor(tasker.InboxCursor{DueAt: s.DueAt, Step: s.StepUUID}.String())
			h.Must(err)
			seen, f.After = append(seen, string(s.Assignee)), &place
		}
		more = again
	}
	check(t, fmt.Sprint(seen) == "[bob ann ann ]", "the pages have %q", seen)
	for _, scope := range []access.Scope{access.NamespaceScope("attic"), access.NamespaceScope()} {
		if list, _, err := h.Engine.Inbox(access.WithScope(h.Context(), scope), tasker.InboxFilter{Limit: 9}); err != nil || len(list) != 0 {
			t.Errorf("another namespace: %v, %v", list, err)
		}
	}
	_, _, err := h.Engine.Inbox(h.Context(), tasker.InboxFilter{Assignees: make([]string, tasker.MaxInboxAssignees+1)})
	h.WantCode(err, tasker.Invalid)
	for _, text := range []string{"", "x~y", "~x", "2026-01-01~" + task0, "0001-01-01T00:00:00Z~" + task0} {
		if _, err := tasker.ParseInboxCursor(text); tasker.CodeOf(err) != tasker.Invalid {
			t.Errorf("%q: %v", text, err)
		}
	}
}

const task0 = "00000000-0000-7000-8000-000000000000"

func TestAnswerMustMatchItsForm(t *testing.T) {
	h := newHarness(t)
	h.Template("approve", asked(func(s *tasker.StepTemplate) {
		s.Form = json.RawMessage(`{"type": "object", "required": ["approved"], "properties": {"approved": {"type": "boolean"}}}`)
	}))
	task := h.Create("approve")
	h.Tick()
	h.wantInbox("a step with a form", "")
	step := h.Step(task, "answer").UUID
	answer := func(o tasker.Outcome) error {
		_, err := h.Engine.CompleteExternal(h.Context(), task, step, o, "ann")
		return err
	}
	for _, result := range []string{`{}`, `{"approved": "yes"}`, `null`, ``} {
		h.WantCode(answer(tasker.Outcome{Success: true, Result: json.RawMessage(result)}), tasker.Invalid)
	}
	h.WantStep(task, "answer", tasker.StepPending, 0)
	h.Must(answer(tasker.Outcome{Success: true, Result: json.RawMessage(`{"approved": false}`)}))
	h.Must(answer(tasker.Outcome{Success: true, Result: json.RawMessage(`{"approved": false}`)}))
	h.WantStep(task, "answer", tasker.StepComplete, 0)
	task = h.Create("approve")
	h.Tick()
	step = h.Step(task, "answer").UUID
	h.Must(answer(tasker.Outcome{Failure: &tasker.Failure{Message: "cannot say"}}))
	h.WantStep(task, "answer", tasker.StepError, 0)
}
