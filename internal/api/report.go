package api

import (
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/incidentreport"
	"tasker.example/tasker/internal/overload"
)

// The forms of a report.
const (
	asJSON     = "json"
	asMarkdown = "md"
)

// reportParams are those of every report.
func reportParams() []param {
	return []param{
		choiceParam("format", "json, or md for Markdown.", []string{asJSON, asMarkdown}),
		textParam("from", "Only investigations that were opened at this instant or later (RFC 3339).", 40),
		textParam("to", "Only investigations that were opened before this instant.", 40),
	}
}

func (s *server) incidentReportRoutes() []*route {
	const tag = "reports"
	const about = "It is exact, from the records, and is about 100,000 investigations at most. Without payloads:read there is no text of an error in it. " +
		"With format=md the answer is text/markdown."
	answers := map[int]any{http.StatusOK: tasker.IncidentReport{}}
	return []*route{
		{
			method: "GET", path: casePath + "/report", id: "reportOfCase", class: overload.Reads, needs: access.ReadInvestigations, tag: tag,
			summary: "How a case went: for how long tasks were stuck, who did what, what was proved", about: about,
			params: reportParams(), answers: answers, serve: s.reportOfCase,
		},
		{
			method: "GET", path: incidentPath + "/report", id: "reportOfIncident", class: overload.Reads, needs: access.ReadInvestigations, tag: tag,
			summary: "How an incident went: the investigations of its cases that were open while it went on", about: about,
			params: reportParams(), answers: answers, serve: s.reportOfIncident,
		},
		{
			method: "GET", path: "/v1/reports", id: "reportOfTime", class: overload.Reads, needs: access.ReadInvestigations, tag: tag,
			summary: "How the investigations went that were opened in a time", about: about,
			params: append(reportParams(), textParam("namespace", "Only those of this namespace.", 128)), answers: answers, serve: s.reportOfTime,
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

func (s *server) answerReport(x *request, q tasker.IncidentReportQuery) (err error) {
	if q.From, err = x.instant("from"); err != nil {
		return err
	}
	if q.To, err = x.instant("to"); err != nil {
		return err
	}
	r, err := incidentreport.Of(x.ctx, s.db, q)
	if err != nil {
		return err
	}
	if x.text("format") != asMarkdown {
		return x.answer(http.StatusOK, r)
	}
	return x.send(http.StatusOK, "text/markdown; charset=utf-8", []byte(incidentreport.Markdown(r)))
}

// instant returns a parameter that is an instant; zero when it is not given.
func (x *request) instant(name string) (t time.Time, err error) {
	text := x.text(name)
	if text == "" {
		return t, nil
	}
	if t, err = time.Parse(time.RFC3339Nano, text); err != nil {
		return t, tasker.Errorf(tasker.Invalid, "invalid %s %q: must be an instant such as 2026-01-31T02:10:00Z", name, text)
	}
	return t, nil
}
