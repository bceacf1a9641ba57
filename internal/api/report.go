package api

import (
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/incidentreport"
)

func (s *server) getCaseReport(x *request, q apiv1.ReportQuery) error {
	id := x.pathUUID("case_id")
	return s.respondWithReport(x, q, tasker.IncidentReportQuery{Case: &id})
}

func (s *server) getIncidentReport(x *request, q apiv1.ReportQuery) error {
	id := x.pathUUID("incident_id")
	return s.respondWithReport(x, q, tasker.IncidentReportQuery{Incident: &id})
}

func (s *server) getPeriodReport(x *request, q apiv1.TimeReportQuery) error {
	return s.respondWithReport(x, q.ReportQuery, tasker.IncidentReportQuery{Namespace: q.Namespace})
}

func (s *server) respondWithReport(x *request, q apiv1.ReportQuery, of tasker.IncidentReportQuery) error {
	of.From, of.To = q.From, q.To
	r, err := incidentreport.Build(x.ctx, s.db, of)
	if err != nil {
		return err
	}
	if q.Format != apiv1.ReportMarkdown {
		return x.respond(http.StatusOK, r)
	}
	return x.send(http.StatusOK, "text/markdown; charset=utf-8", []byte(incidentreport.Markdown(r)))
}
