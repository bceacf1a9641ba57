package api

import (
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

func (s *server) listCases(x *request, f tasker.CaseFilter) error {
	list, totals, more, err := s.db.CasePage(x.ctx, f)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.FromCases(orEmpty(list), more, totals))
}

func (s *server) updateCase(x *request, req apiv1.UpdateCase) error {
	u := tasker.CaseUpdate{
		Owner: req.Owner, OwnedFor: time.Duration(req.OwnedForMinutes) * time.Minute, Snooze: req.SnoozeUntil, SnoozeThreshold: req.SnoozeAbove,
		FixedIn: req.FixedIn, Notes: req.Notes, Actor: x.resolveActor(req.Actor), IfUnchangedSince: req.ExpectedUpdatedAt,
	}
	if req.Wake {
		if u.Snooze != nil {
			return tasker.Errorf(tasker.Invalid, "invalid wake: it cannot be combined with snooze_until")
		}
		u.Snooze = &time.Time{}
	}
	c, err := s.caseService.Update(x.ctx, x.pathUUID("case_id"), u)
	return x.respondResult(http.StatusOK, c, err)
}

func (s *server) mergeCase(x *request, req apiv1.MergeCase) error {
	id := x.pathUUID("case_id")
	into, err := parseID(req.Into)
	if err != nil {
		return tasker.Errorf(tasker.Invalid, "invalid into %q: must be a UUID", req.Into)
	}
	if err := s.caseService.Merge(x.ctx, id, into, x.resolveActor(req.Actor), req.Reason); err != nil {
		return err
	}
	return s.respondWithCase(x, into)
}

func (s *server) unmergeCase(x *request, req apiv1.UnmergeCase) error {
	id := x.pathUUID("case_id")
	if err := s.caseService.Unmerge(x.ctx, id, x.resolveActor(req.Actor), req.Reason); err != nil {
		return err
	}
	return s.respondWithCase(x, id)
}

func (s *server) respondWithCase(x *request, id tasker.ID) error {
	c, err := s.db.Case(x.ctx, id)
	return x.respondResult(http.StatusOK, c, err)
}

func (s *server) splitCase(x *request, req apiv1.SplitCase) error {
	id := x.pathUUID("case_id")
	n, err := s.caseService.Split(x.ctx, id, tasker.CaseSplit{Field: req.Field, Literal: req.Literal, Actor: x.resolveActor(req.Actor), Reason: req.Reason})
	if err != nil {
		return err
	}
	return x.respond(http.StatusAccepted, apiv1.CaseSplit{CaseID: id.String(), Entries: n})
}
