package api

import (
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/incidentreport"
	"tasker.example/tasker/internal/query"
)

func (s *server) listCases(x *request, f tasker.CaseFilter) (apiv1.CaseList, error) {
	list, totals, more, err := s.db.CasePage(x.ctx, f)
	return apiv1.CaseList{Cases: orEmpty(list), HasMore: more, CaseTotals: totals}, err
}

func (s *server) updateCase(x *request, req apiv1.UpdateCase) (tasker.Case, error) {
	u := tasker.CaseUpdate{
		Owner: req.Owner, OwnedFor: time.Duration(req.OwnedForMinutes) * time.Minute, Snooze: req.SnoozeUntil, SnoozeThreshold: req.SnoozeAbove,
		FixedIn: req.FixedIn, Notes: req.Notes, Actor: x.resolveActor(req.Actor), IfUnchangedSince: req.ExpectedUpdatedAt,
	}
	if req.Wake {
		if u.Snooze != nil {
			return tasker.Case{}, tasker.Errorf(tasker.Invalid, "invalid wake: it cannot be combined with snooze_until")
		}
		u.Snooze = &time.Time{}
	}
	return s.caseService.Update(x.ctx, x.pathUUID("case_id"), u)
}

func (s *server) mergeCase(x *request, req apiv1.MergeCase) (c tasker.Case, err error) {
	into, err := parseID(req.Into)
	if err != nil {
		return c, tasker.Errorf(tasker.Invalid, "invalid into %q: must be a UUID", req.Into)
	}
	if err := s.caseService.Merge(x.ctx, x.pathUUID("case_id"), into, x.resolveActor(req.Actor), req.Reason); err != nil {
		return c, err
	}
	return s.db.Case(x.ctx, into)
}

func (s *server) unmergeCase(x *request, req apiv1.UnmergeCase) (tasker.Case, error) {
	id := x.pathUUID("case_id")
	if err := s.caseService.Unmerge(x.ctx, id, x.resolveActor(req.Actor), req.Reason); err != nil {
		return tasker.Case{}, err
	}
	return s.db.Case(x.ctx, id)
}

func (s *server) splitCase(x *request, req apiv1.SplitCase) (apiv1.CaseSplit, error) {
	id := x.pathUUID("case_id")
	n, err := s.caseService.Split(x.ctx, id, tasker.CaseSplit{Field: req.Field, Literal: req.Literal, Actor: x.resolveActor(req.Actor), Reason: req.Reason})
	return apiv1.CaseSplit{CaseID: id.String(), Entries: n}, err
}

func (s *server) listIncidents(x *request, f tasker.IncidentFilter) (apiv1.IncidentList, error) {
	list, more, err := s.db.Incidents(x.ctx, f)
	return apiv1.IncidentList{Incidents: orEmpty(list), Pagination: newPagination(f.Limit, f.Offset, len(list), more)}, err
}

func (s *server) tryMessage(x *request, req apiv1.TryMessage) (apiv1.TriedMessage, error) {
	if err := x.checkNamespace(req.Namespace); err != nil {
		return apiv1.TriedMessage{}, err
	}
	tried, err := s.notifier.SendTest(x.ctx, emission.TestMessage{
		Namespace: req.Namespace, Template: req.Template, Severity: tasker.Severity(req.Severity), Reason: tasker.Reason(req.Reason), Cause: req.Cause, Actor: x.resolveActor(req.By),
	})
	return apiv1.TriedMessage{SubjectID: tried.SubjectID.String(), Routes: orEmpty(tried.Routes), Sinks: orEmpty(tried.Sinks)}, err
}

// getReport sends the report of the case or the incident in the path, or of a time range.
func (s *server) getReport(x *request) error {
	var q apiv1.TimeReportQuery
	if err := query.Decode(x.query, &q); err != nil {
		return err
	}
	of := tasker.IncidentReportQuery{Namespace: q.Namespace, From: q.From, To: q.To}
	if id, err := x.parsePathUUID("case_id"); err == nil {
		of.Case = &id
	}
	if id, err := x.parsePathUUID("incident_id"); err == nil {
		of.Incident = &id
	}
	r, err := incidentreport.Build(x.ctx, s.db, of)
	if err != nil {
		return err
	}
	if q.Format != apiv1.ReportMarkdown {
		return x.respond(http.StatusOK, r)
	}
	return x.send(http.StatusOK, "text/markdown; charset=utf-8", []byte(incidentreport.Markdown(r)))
}
