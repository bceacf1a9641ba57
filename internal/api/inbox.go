package api

import (
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
)

func (s *server) listInbox(x *request, q apiv1.InboxQuery) (inbox apiv1.Inbox, err error) {
	f := tasker.InboxFilter{Namespace: q.Namespace, Template: q.Template, Overdue: q.Overdue, Limit: q.Limit}
	if f.Assignees, err = x.readAssignees(q); err != nil {
		return inbox, err
	}
	if !q.DueBefore.IsZero() {
		f.DueBefore = &q.DueBefore
	}
	if q.After != "" {
		after, err := tasker.ParseInboxCursor(q.After)
		if err != nil {
			return inbox, err
		}
		f.After = &after
	}
	list, more, err := s.engine.Inbox(x.ctx, f)
	page := apiv1.InboxPage{Limit: f.Limit, Count: len(list), HasMore: more}
	page.NextAfter = nextCursor(list, more, func(h tasker.HumanStep) string {
		return tasker.InboxCursor{DueAt: h.DueAt, Step: h.StepUUID}.String()
	})
	return apiv1.Inbox{Steps: orEmpty(list), Pagination: page}, err
}

// readAssignees returns the assignees to which the inbox is limited; nil means all.
func (x *request) readAssignees(q apiv1.InboxQuery) ([]string, error) {
	list := slices.Clone(q.Assignees)
	if q.Mine {
		mine := access.IdentityFromContext(x.ctx).Assignees()
		if len(mine) == 0 {
			return nil, tasker.Errorf(tasker.Invalid, "\"mine\" requires authentication: this server does not authenticate callers; use assignee")
		}
		list = append(list, mine...)
	}
	if q.Unassigned {
		list = append(list, "")
	}
	if len(list) == 0 {
		return nil, nil
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

func (s *server) getStepAssignee(x *request, ref tasker.StepRef, _ none) (tasker.HumanStepDetail, error) {
	return s.engine.HumanStep(x.ctx, ref)
}

func (s *server) assignStep(x *request, ref tasker.StepRef, req apiv1.AssignStep) (tasker.HumanStep, error) {
	return s.engine.Assign(x.ctx, ref, tasker.AssignRequest{Assignee: req.Assignee, Reason: req.Reason, Actor: x.resolveActorOrUnknown(req.By)})
}
