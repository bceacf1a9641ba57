package api

import (
	"cmp"
	"net/http"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

func (s *server) inboxRoutes() []*route {
	const tag = "inbox"
	return []*route{
		{
			method: "GET", path: "/v1/inbox", id: "listInbox", class: overload.Reads, needs: access.ReadTasks, tag: tag,
			summary: "List what waits for people: what is due first before the rest",
			about:   "An external step is here while it waits, if its template has assignee or form, or somebody assigned it. What has no timeout is behind what has one.",
			params: []param{
				boolParam("mine", "Only what waits for the caller, or for a group of the caller."),
				textParam("assignee", "Only what waits for this person, or for group: and this group; may be repeated.", tasker.MaxAssigneeBytes).upTo(tasker.MaxInboxAssignees),
				boolParam("unassigned", "Only what waits for nobody in particular."),
				textParam("namespace", "Only those of this namespace.", 128), textParam("template", "Only those of the tasks of this template.", 128),
				timeParam("due_before", "Only those whose timeout is before this instant."), boolParam("overdue", "Only those whose timeout is over, and which a server is about to end."),
				textParam("after", "Only those behind this place: next_after of the page before.", 100), limitParam(defaultLimit),
			},
			answers: map[int]any{http.StatusOK: apiv1.Inbox{}},
			serve:   s.listInbox,
		},
		{
			method: "GET", path: stepPath + "/assignee", id: "getAssignee", class: overload.Reads, needs: access.ReadTasks, tag: tag,
			summary: "Who is to answer an external step, what an answer looks like, and who changed that",
			answers: map[int]any{http.StatusOK: apiv1.HumanStepDetail{}},
			serve:   s.stepAssignee,
		},
		{
			method: "PUT", path: stepPath + "/assignee", id: "assignStep", class: overload.Operations, needs: access.OperateSteps, tag: tag,
			summary: "Say who is to answer an external step that waits",
			about: "For operators: safe to repeat, the same assignee again changes nothing. Who has steps:complete may answer whoever is assigned. " +
				"A step that does not wait for an answer is a CONFLICT. A reset keeps the assignee.",
			body:    apiv1.AssignStep{},
			answers: map[int]any{http.StatusOK: apiv1.HumanStep{}},
			serve:   s.assignStep,
		},
	}
}

func (s *server) listInbox(x *request) error {
	f := tasker.InboxFilter{Namespace: x.text("namespace"), Template: x.text("template"), Overdue: isTrue(x.bool("overdue")), Limit: x.int("limit")}
	var err error
	if f.Assignees, err = x.assignees(); err != nil {
		return err
	}
	if at := x.time("due_before"); !at.IsZero() {
		f.DueBefore = &at
	}
	if text := x.text("after"); text != "" {
		place, err := tasker.ParseInboxCursor(text)
		if err != nil {
			return err
		}
		f.After = &place
	}
	list, more, err := s.engine.Inbox(x.ctx, f)
	if err != nil {
		return err
	}
	page := apiv1.InboxPage{Limit: f.Limit, Count: len(list), HasMore: more}
	if more {
		last := list[len(list)-1]
		next := tasker.InboxCursor{DueAt: last.DueAt, Step: last.StepUUID}.String()
		page.NextAfter = &next
	}
	return x.answer(http.StatusOK, apiv1.Inbox{Steps: convert(list, apiv1.FromHumanStep), Pagination: page})
}

// assignees returns whose inbox is asked for; nil: everybody's.
func (x *request) assignees() ([]string, error) {
	list := slices.DeleteFunc(slices.Clone(x.texts("assignee")), func(name string) bool { return name == "" })
	if isTrue(x.bool("mine")) {
		mine := access.IdentityOf(x.ctx).Assignees()
		if len(mine) == 0 {
			return nil, tasker.Errorf(tasker.Invalid, "mine: this server does not know who calls; give assignee")
		}
		list = append(list, mine...)
	}
	if isTrue(x.bool("unassigned")) {
		list = append(list, "")
	}
	if len(list) == 0 {
		return nil, nil
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

func (s *server) stepAssignee(x *request) error {
	task, step, err := s.ids(x)
	if err != nil {
		return err
	}
	d, err := s.engine.HumanStep(x.ctx, tasker.StepRef{TaskUUID: task, StepUUID: step})
	return respondWith(x, http.StatusOK, d, err, apiv1.FromHumanStepDetail)
}

func (s *server) assignStep(x *request) error {
	task, step, err := s.ids(x)
	if err != nil {
		return err
	}
	var req apiv1.AssignStep
	if err := x.read(&req); err != nil {
		return err
	}
	now, err := s.engine.Assign(x.ctx, tasker.StepRef{TaskUUID: task, StepUUID: step}, tasker.AssignRequest{Assignee: req.Assignee, Reason: req.Reason, Actor: cmp.Or(x.actor(req.By), unknownActor)})
	return respondWith(x, http.StatusOK, now, err, apiv1.FromHumanStep)
}
