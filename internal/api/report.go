package api

import (
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/incidentreport"
	"tasker.example/tasker/internal/overload"
)

const asJSON, asMarkdown = "json", "md"

func reportParams() []param {
	return []param{
		choiceParam("format", "json, or md for Markdown.", []string{asJSON, asMarkdown}),
		timeParam("from", "Start of the time range."), timeParam("to", "End of the time range, exclusive."),
	}
}

func (s *server) incidentReportRoutes() []*route {
	const tag = "reports"
	const about = "It is computed from the stored records, of at most 100,000 investigations. Without payloads:read error texts are omitted. " +
		"With format=md the response is text/markdown."
	answers := ok(tasker.IncidentReport{})
	return []*route{
		{
			method: "GET", path: casePath + "/report", id: "reportOfCase", class: overload.Reads, needs: access.ReadInvestigations, tag: tag,
			summary: "Get the report of a case: how long tasks were stuck, who acted, and the outcome", about: about,
			params: reportParams(), answers: answers, serve: s.reportOfCase,
		},
		{
			method: "GET", path: incidentPath + "/report", id: "reportOfIncident", class: overload.Reads, needs: access.ReadInvestigations, tag: tag,
			summary: "Get the report of an incident: the investigations of its cases that were open during it", about: about,
			params: reportParams(), answers: answers, serve: s.reportOfIncident,
		},
		{
			method: "GET", path: "/v1/reports", id: "reportOfTime", class: overload.Reads, needs: access.ReadInvestigations, tag: tag,
			summary: "Get the report of the investigations that were opened in a time range", about: about,
			params: append(reportParams(), textParam("namespace", "Filter by namespace.", 128)), answers: answers, serve: s.reportOfTime,
		},
	}
}

func (s *server) reportOfCase(x *request) error {
	id := x.id("case_id")
	return s.answerReport(x, tasker.IncidentReportQuery{Case: &id})
}

func (s *server) reportOfIncident(x *request) error {
	id := x.id("incident_id")
	return s.answerReport(x, tasker.IncidentReportQuery{Incident: &id})
}

func (s *server) reportOfTime(x *request) error {
	return s.answerReport(x, tasker.IncidentReportQuery{Namespace: x.text("namespace")})
}

func (s *server) answerReport(x *request, q tasker.IncidentReportQuery) error {
	q.From, q.To = x.time("from"), x.time("to")
	r, err := incidentreport.Of(x.ctx, s.db, q)
	if err != nil {
		return err
	}
	if x.text("format") != asMarkdown {
		return x.answer(http.StatusOK, r)
	}
	return x.send(http.StatusOK, "text/markdown; charset=utf-8", []byte(incidentreport.Markdown(r)))
}
