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
			method: "GET", path: "/v1/cases", id: "listCases", class: overload.Reads, permission: access.ReadInvestigations,
			tag:     tag,
			summary: "List cases of open investigations, most costly first",
			doc: "The filters of the investigation queue select the counted investigations. To list the investigations of a case, use the parameter case of the queue. " +
				"case_state=resolved lists cases without open investigations, last resolved first.",
			params: append(investigationParams(),
				choiceParam("case_state", "Filter by state of the case.", tasker.CaseStates()),
				textParam("owner", "Filter by owner.", 255), boolParam("unowned", "Only cases without an owner."),
				boolParam("failed_again", "Only cases with a step that failed again after a repair."),
			),
			responses: okResponse(apiv1.CaseList{}), serve: s.listCases,
		},
		{
			method: "GET", path: casePath, id: "getCase", class: overload.Reads, permission: access.ReadInvestigations, tag: tag,
			summary:   "Get a case with its counts, samples, differences, outcomes and history",
			responses: okResponse(apiv1.CaseDetail{}),
			serve:     newGetHandler("case_id", s.caseService.FindDetail, apiv1.FromCaseDetail),
		},
		{
			method: "GET", path: casePath + "/why", id: "whyCase", class: overload.Reads, permission: access.ReadInvestigations, tag: tag,
			summary:   "Explain how a case was grouped: its fingerprint, and the ignored parts of messages",
			responses: okResponse(apiv1.CaseWhy{}), serve: newGetHandler("case_id", s.caseService.Why, apiv1.FromCaseWhy),
		},
		{
			method: "GET", path: casePath + "/changes", id: "changesOfCase", class: overload.Reads, permission: access.ReadInvestigations, tag: tag,
			summary:   "Compare the failures of a case with successes of the same step, and show its impact",
			responses: okResponse(apiv1.CaseChanges{}),
			serve:     newGetHandler("case_id", s.caseService.Changes, apiv1.FromCaseChanges),
		},
	}
}

func (s *server) caseActionRoutes() []*route {
	const tag = "cases"
	return []*route{
		{
			method: "PATCH", path: casePath, id: "updateCase", class: overload.Operations, permission: access.UpdateInvestigations, tag: tag,
			summary: "Assign a case, snooze it, or add a note",
			doc:     "Absent fields do not change. Tasks and investigations do not change.",
			body:    apiv1.UpdateCase{}, responses: okResponse(apiv1.Case{}), serve: withBody(s.updateCase),
		},
		{
			method: "POST", path: casePath + "/merge", id: "mergeCase", class: overload.Operations, permission: access.UpdateInvestigations, tag: tag,
			summary: "Merge a case into another",
			doc:     "Both must be in the same namespace. Investigations do not change, and unmerge reverts it exactly.",
			body:    apiv1.MergeCase{}, responses: okResponse(apiv1.Case{}), serve: withBody(s.mergeCase),
		},
		{
			method: "POST", path: casePath + "/unmerge", id: "unmergeCase", class: overload.Operations, permission: access.UpdateInvestigations, tag: tag,
			summary: "Undo a merge",
			body:    apiv1.UnmergeCase{}, responses: okResponse(apiv1.Case{}), serve: withBody(s.unmergeCase),
		},
		{
			method: "POST", path: casePath + "/split", id: "splitCase", class: overload.Operations, permission: access.UpdateInvestigations, tag: tag,
			summary: "Split a case by the text of a field",
			doc:     "Current and future failures with the text get their own case within seconds. To undo the split, merge that case into this one.",
			body:    apiv1.SplitCase{}, responses: map[int]any{http.StatusAccepted: apiv1.CaseSplit{}},
			serve: withBody(s.splitCase),
		},
	}
}

func (s *server) listCases(x *request) error {
	f := tasker.CaseFilter{InvestigationFilter: x.readInvestigationFilter(), Owner: x.queryText("owner"), Unowned: x.queryFlag("unowned"), FailedAgain: x.queryFlag("failed_again")}
	if state := x.queryText("case_state"); state != "" {
		f.States = []tasker.CaseState{tasker.CaseState(state)}
	}
	list, totals, more, err := s.db.CasePage(x.ctx, f)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.FromCases(convert(list, apiv1.FromCase), more, totals))
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
	return respondWith(x, http.StatusOK, c, err, apiv1.FromCase)
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
	return respondWith(x, http.StatusOK, c, err, apiv1.FromCase)
}

func (s *server) splitCase(x *request, req apiv1.SplitCase) error {
	id := x.pathUUID("case_id")
	n, err := s.caseService.Split(x.ctx, id, tasker.CaseSplit{Field: req.Field, Literal: req.Literal, Actor: x.resolveActor(req.Actor), Reason: req.Reason})
	if err != nil {
		return err
	}
	return x.respond(http.StatusAccepted, apiv1.CaseSplit{CaseID: id.String(), Entries: n})
}
