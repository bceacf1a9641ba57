package api

import (
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

const casePath = "/v1/cases/{case_id}"

func (s *server) caseRoutes() []*route {
	const tag = "cases"
	return []*route{
		{
			method: "GET", path: "/v1/cases", id: "listCases", class: overload.Reads, needs: access.ReadInvestigations, tag: tag,
			summary: "Cases: open investigations of one cause, those that cost most first",
			about: "The filters of the investigation queue select the investigations that are counted; the parameter case of the queue selects those of one case. " +
				"With case_state=resolved, the cases without open investigations, the last resolved first.",
			params: append(investigationParams(),
				choiceParam("case_state", "Only cases in this state.", tasker.CaseStates()),
				textParam("owner", "Only cases of this owner.", 255), boolParam("unowned", "Only cases that nobody has taken."),
				boolParam("failed_again", "Only cases in which a step failed again after a repair."),
			),
			answers: map[int]any{http.StatusOK: apiv1.CaseList{}},
			serve:   s.cases,
		},
		{
			method: "GET", path: casePath, id: "getCase", class: overload.Reads, needs: access.ReadInvestigations, tag: tag,
			summary: "One case: its counts, samples, what differs among its investigations, how earlier ones ended, and its history",
			answers: map[int]any{http.StatusOK: apiv1.CaseDetail{}},
			serve:   s.oneCase,
		},
		{
			method: "GET", path: casePath + "/why", id: "whyCase", class: overload.Reads, needs: access.ReadInvestigations, tag: tag,
			summary: "Why the investigations of a case are one: its fingerprint, and what differs in their messages",
			answers: map[int]any{http.StatusOK: apiv1.CaseWhy{}},
			serve:   s.whyCase,
		},
		{
			method: "GET", path: casePath + "/changes", id: "changesOfCase", class: overload.Reads, needs: access.ReadInvestigations, tag: tag,
			summary: "What differs between the failures of a case and the successes of the same step, who is hit, and until when",
			answers: map[int]any{http.StatusOK: apiv1.CaseChanges{}},
			serve:   s.changesOfCase,
		},
	}
}

// caseActionRoutes are what people do to cases.
func (s *server) caseActionRoutes() []*route {
	const tag = "cases"
	return []*route{
		{
			method: "PATCH", path: casePath, id: "updateCase", class: overload.Operations, needs: access.UpdateInvestigations, tag: tag,
			summary: "Take a case, let it rest, or note something",
			about:   "Absent fields stay as they are. No investigation and no task changes.",
			body:    apiv1.UpdateCase{},
			answers: map[int]any{http.StatusOK: apiv1.Case{}},
			serve:   withBody(s.updateCase),
		},
		{
			method: "POST", path: casePath + "/merge", id: "mergeCase", class: overload.Operations, needs: access.UpdateInvestigations, tag: tag,
			summary: "Have the investigations of a case belong to another one, from now on",
			about:   "Both must be of one namespace. No investigation changes, and unmerge takes it back exactly.",
			body:    apiv1.MergeCase{},
			answers: map[int]any{http.StatusOK: apiv1.Case{}},
			serve:   withBody(s.mergeCase),
		},
		{
			method: "POST", path: casePath + "/unmerge", id: "unmergeCase", class: overload.Operations, needs: access.UpdateInvestigations, tag: tag,
			summary: "Take back that a case was merged into another one",
			body:    apiv1.UnmergeCase{},
			answers: map[int]any{http.StatusOK: apiv1.Case{}},
			serve:   withBody(s.unmergeCase),
		},
		{
			method: "POST", path: casePath + "/split", id: "splitCase", class: overload.Operations, needs: access.UpdateInvestigations, tag: tag,
			summary: "Take the failures out of a case that have a text in a field, now and from now on",
			about:   "They are a case of their own within seconds. Merging that case into this one takes it back.",
			body:    apiv1.SplitCase{},
			answers: map[int]any{http.StatusAccepted: apiv1.CaseSplit{}},
			serve:   withBody(s.splitCase),
		},
	}
}

func (s *server) cases(x *request) error {
	f := tasker.CaseFilter{InvestigationFilter: x.investigationFilter(), Owner: x.text("owner"), Unowned: isTrue(x.bool("unowned")), FailedAgain: isTrue(x.bool("failed_again"))}
	if state := x.text("case_state"); state != "" {
		f.States = []tasker.CaseState{tasker.CaseState(state)}
	}
	list, totals, more, err := s.db.CasePage(x.ctx, f)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.FromCases(convert(list, apiv1.FromCase), more, totals))
}

func isTrue(b *bool) bool { return b != nil && *b }

func (s *server) oneCase(x *request) error {
	id := x.id("case_id")
	d, err := s.caseService.Detail(x.ctx, id)
	return respondWith(x, http.StatusOK, d, err, apiv1.FromCaseDetail)
}

func (s *server) whyCase(x *request) error {
	id := x.id("case_id")
	why, err := s.caseService.Why(x.ctx, id)
	return respondWith(x, http.StatusOK, why, err, apiv1.FromCaseWhy)
}

func (s *server) changesOfCase(x *request) error {
	id := x.id("case_id")
	changes, err := s.caseService.Changes(x.ctx, id)
	return respondWith(x, http.StatusOK, changes, err, apiv1.FromCaseChanges)
}

func (s *server) updateCase(x *request, req apiv1.UpdateCase) error {
	id := x.id("case_id")
	u := tasker.CaseUpdate{
		Owner: req.Owner, OwnedFor: time.Duration(req.OwnedForMinutes) * time.Minute, Snooze: req.SnoozeUntil, SnoozeThreshold: req.SnoozeAbove,
		FixedIn: req.FixedIn, Notes: req.Notes, Actor: x.actor(req.Actor), IfUnchangedSince: req.ExpectedUpdatedAt,
	}
	if req.Wake {
		if u.Snooze != nil {
			return tasker.Errorf(tasker.Invalid, "invalid wake: it cannot be given with snooze_until")
		}
		u.Snooze = &time.Time{}
	}
	c, err := s.caseService.Update(x.ctx, id, u)
	return respondWith(x, http.StatusOK, c, err, apiv1.FromCase)
}

func (s *server) mergeCase(x *request, req apiv1.MergeCase) error {
	id := x.id("case_id")
	into, err := parseID(req.Into)
	if err != nil {
		return tasker.Errorf(tasker.Invalid, "invalid into %q: must be a UUID", req.Into)
	}
	if err := s.caseService.Merge(x.ctx, id, into, x.actor(req.Actor), req.Reason); err != nil {
		return err
	}
	return s.answerCase(x, into)
}

func (s *server) unmergeCase(x *request, req apiv1.UnmergeCase) error {
	id := x.id("case_id")
	if err := s.caseService.Unmerge(x.ctx, id, x.actor(req.Actor), req.Reason); err != nil {
		return err
	}
	return s.answerCase(x, id)
}

func (s *server) answerCase(x *request, id tasker.ID) error {
	c, err := s.db.Case(x.ctx, id)
	return respondWith(x, http.StatusOK, c, err, apiv1.FromCase)
}

func (s *server) splitCase(x *request, req apiv1.SplitCase) error {
	id := x.id("case_id")
	n, err := s.caseService.Split(x.ctx, id, tasker.CaseSplit{Field: req.Field, Literal: req.Literal, Actor: x.actor(req.Actor), Reason: req.Reason})
	if err != nil {
		return err
	}
	return x.answer(http.StatusAccepted, apiv1.CaseSplit{CaseID: id.String(), Entries: n})
}
