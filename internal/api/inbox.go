package api

import (
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
			method: "GET", path: "/v1/inbox", id: "listInbox", class: overload.Reads, permission: access.ReadTasks, tag: tag,
			summary: "List human steps, earliest due first",
			doc:     "An external step is listed while it waits, if its template has an assignee or a form, or if it was assigned. Steps without a timeout come last.",
			params: []param{
				boolParam("mine", "Include steps assigned to the caller or to a group of the caller."),
				textParam("assignee", "Include steps assigned to this person, or to group:NAME; repeatable.", tasker.MaxAssigneeBytes).withMaxValues(tasker.MaxInboxAssignees),
				boolParam("unassigned", "Include steps without an assignee."),
				textParam("namespace", "Filter by namespace.", 128), textParam("template", "Filter by template.", 128),
				timeParam("due_before", "Only steps that time out before this time."), boolParam("overdue", "Only steps whose timeout has passed."),
				textParam("after", "Page cursor: next_after of the previous page.", 100), limitParam(defaultLimit),
			},
			responses: okResponse(apiv1.Inbox{}), serve: s.listInbox,
		},
		{
			method: "GET", path: stepPath + "/assignee", id: "getAssignee", class: overload.Reads, permission: access.ReadTasks, tag: tag,
			summary:   "Get the assignee, the form and the assignment history of a human step",
			responses: okResponse(apiv1.HumanStepDetail{}), serve: s.getStepAssignee,
		},
		{
			method: "PUT", path: stepPath + "/assignee", id: "assignStep", class: overload.Operations, permission: access.OperateSteps, tag: tag,
			summary: "Assign an external step that waits",
			doc: "For operators. Safe to repeat. Callers with steps:complete may answer for any assignee. " +
				"A step that does not wait for an answer is a CONFLICT. A reset keeps the assignee.",
			body: apiv1.AssignStep{}, responses: okResponse(apiv1.HumanStep{}), serve: s.assignStep,
		},
	}
}

func (s *server) listInbox(x *request) error {
	f := tasker.InboxFilter{Namespace: x.queryText("namespace"), Template: x.queryText("template"), Overdue: x.queryFlag("overdue"), Limit: x.queryInt("limit")}
	var err error
	if f.Assignees, err = x.readAssignees(); err != nil {
		return err
	}
	if at := x.queryTime("due_before"); !at.IsZero() {
		f.DueBefore = &at
	}
	if text := x.queryText("after"); text != "" {
		after, err := tasker.ParseInboxCursor(text)
		if err != nil {
			return err
		}
		f.After = &after
	}
	list, more, err := s.engine.Inbox(x.ctx, f)
	if err != nil {
		return err
	}
	page := apiv1.InboxPage{Limit: f.Limit, Count: len(list), HasMore: more}
	page.NextAfter = nextCursor(list, more, func(h tasker.HumanStep) string {
		return tasker.InboxCursor{DueAt: h.DueAt, Step: h.StepUUID}.String()
	})
	return x.respond(http.StatusOK, apiv1.Inbox{Steps: convert(list, apiv1.FromHumanStep), Pagination: page})
}

// readAssignees returns the assignees to which the inbox is limited; nil means all.
func (x *request) readAssignees() ([]string, error) {
	list := slices.DeleteFunc(slices.Clone(x.queryTexts("assignee")), func(name string) bool { return name == "" })
	if x.queryFlag("mine") {
		mine := access.IdentityFromContext(x.ctx).Assignees()
		if len(mine) == 0 {
			return nil, tasker.Errorf(tasker.Invalid, "\"mine\" requires authentication: this server does not authenticate callers; use assignee")
		}
		list = append(list, mine...)
	}
	if x.queryFlag("unassigned") {
		list = append(list, "")
	}
	if len(list) == 0 {
		return nil, nil
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

func (s *server) getStepAssignee(x *request) error {
	task, step, err := s.readTaskAndStepIDs(x)
	if err != nil {
		return err
	}
	d, err := s.engine.HumanStep(x.ctx, tasker.StepRef{TaskUUID: task, StepUUID: step})
	return respondWith(x, http.StatusOK, d, err, apiv1.FromHumanStepDetail)
}

func (s *server) assignStep(x *request) error {
	task, step, err := s.readTaskAndStepIDs(x)
	if err != nil {
		return err
	}
	var req apiv1.AssignStep
	if err := x.read(&req); err != nil {
		return err
	}
	now, err := s.engine.Assign(x.ctx, tasker.StepRef{TaskUUID: task, StepUUID: step}, tasker.AssignRequest{Assignee: req.Assignee, Reason: req.Reason, Actor: x.resolveActorOrUnknown(req.By)})
	return respondWith(x, http.StatusOK, now, err, apiv1.FromHumanStep)
}
