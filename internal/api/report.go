package api

import (
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/incidentreport"
	"tasker.example/tasker/internal/overload"
)

const jsonFormat, markdownFormat = "json", "md"

func reportParams() []param {
	return []param{
		choiceParam("format", "json, or md for Markdown.", []string{jsonFormat, markdownFormat}),
		timeParam("from", "Start of the time range."), timeParam("to", "End of the time range, exclusive."),
	}
}

func (s *server) incidentReportRoutes() []*route {
	const tag = "reports"
	const about = "It is computed from the stored records, of at most 100,000 investigations. Without payloads:read error texts are omitted. " +
		"With format=md the response is text/markdown."
	answers := okResponse(tasker.IncidentReport{})
	return []*route{
		{
			method: "GET", path: casePath + "/report", id: "reportOfCase", class: overload.Reads, permission: access.ReadInvestigations, tag: tag,
			summary: "Get the report of a case: how long tasks were stuck, who acted, and the outcome", doc: about,
			params: reportParams(), responses: answers, serve: s.getCaseReport,
		},
		{
			method: "GET", path: incidentPath + "/report", id: "reportOfIncident", class: overload.Reads, permission: access.ReadInvestigations, tag: tag,
			summary: "Get the report of an incident: the investigations of its cases that were open during it",
			doc:     about,
			params:  reportParams(), responses: answers, serve: s.getIncidentReport,
		},
		{
			method: "GET", path: "/v1/reports", id: "reportOfTime", class: overload.Reads, permission: access.ReadInvestigations, tag: tag,
			summary: "Get the report of the investigations that were opened in a time range", doc: about,
			params: append(reportParams(), textParam("namespace", "Filter by namespace.", 128)), responses: answers, serve: s.getPeriodReport,
		},
	}
}

func (s *server) getCaseReport(x *request) error {
	id := x.pathUUID("case_id")
	return s.respondWithReport(x, tasker.IncidentReportQuery{Case: &id})
}

func (s *server) getIncidentReport(x *request) error {
	id := x.pathUUID("incident_id")
	return s.respondWithReport(x, tasker.IncidentReportQuery{Incident: &id})
}

func (s *server) getPeriodReport(x *request) error {
	return s.respondWithReport(x, tasker.IncidentReportQuery{Namespace: x.queryText("namespace")})
}

func (s *server) respondWithReport(x *request, q tasker.IncidentReportQuery) error {
	q.From, q.To = x.queryTime("from"), x.queryTime("to")
	r, err := incidentreport.Build(x.ctx, s.db, q)
	if err != nil {
		return err
	}
	if x.queryText("format") != markdownFormat {
		return x.respond(http.StatusOK, r)
	}
	return x.send(http.StatusOK, "text/markdown; charset=utf-8", []byte(incidentreport.Markdown(r)))
}
