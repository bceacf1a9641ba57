package api

import (
	"net/http"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
)

func (s *server) listInbox(x *request, q apiv1.InboxQuery) error {
	f := tasker.InboxFilter{Namespace: q.Namespace, Template: q.Template, Overdue: q.Overdue, Limit: q.Limit}
	var err error
	if f.Assignees, err = x.readAssignees(q); err != nil {
		return err
	}
	if !q.DueBefore.IsZero() {
		f.DueBefore = &q.DueBefore
	}
	if q.After != "" {
		after, err := tasker.ParseInboxCursor(q.After)
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
	return x.respond(http.StatusOK, apiv1.Inbox{Steps: orEmpty(list), Pagination: page})
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

func (s *server) getStepAssignee(x *request) error {
	task, step, err := s.readTaskAndStepIDs(x)
	if err != nil {
		return err
	}
	d, err := s.engine.HumanStep(x.ctx, tasker.StepRef{TaskUUID: task, StepUUID: step})
	return x.respondResult(http.StatusOK, d, err)
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
	return x.respondResult(http.StatusOK, now, err)
}
