package api

import (
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/overload"
)

const incidentPath = "/v1/incidents/{incident_id}"

func (s *server) incidentRoutes() []*route {
	const tag = "incidents"
	return []*route{
		{
			method: "GET", path: "/v1/incidents", id: "listIncidents", class: overload.Reads, needs: access.ReadInvestigations, tag: tag,
			summary: "Incidents: cases of one namespace that people were told of together, newest first",
			params: []param{
				choiceParam("state", "Only those that go on, or only those that have ended.", tasker.IncidentStates()), textParam("namespace", "Only those of this namespace.", 128),
				limitParam(defaultLimit), offsetParam(),
			},
			answers: map[int]any{http.StatusOK: apiv1.IncidentList{}},
			serve:   s.listIncidents,
		},
		{
			method: "GET", path: incidentPath, id: "getIncident", class: overload.Reads, needs: access.ReadInvestigations, tag: tag,
			summary: "One incident: its cases, and what people were told of it, when and by which sinks",
			answers: map[int]any{http.StatusOK: apiv1.IncidentDetail{}},
			serve:   s.oneIncident,
		},
		{
			method: "POST", path: "/v1/messages/test", id: "tryMessage", class: overload.Operations, needs: access.ResendEvents, tag: tag,
			summary: "Try the routes: send a message about nothing",
			about:   "For operators; it is recorded in the audit log. It goes to the sinks of the first route that is for such a message, as message.test.",
			body:    apiv1.TryMessage{},
			answers: map[int]any{http.StatusOK: apiv1.TriedMessage{}},
			serve:   withBody(s.tryMessage),
		},
	}
}

func (s *server) listIncidents(x *request) error {
	list, more, err := s.db.Incidents(x.ctx, tasker.IncidentFilter{
		State: tasker.IncidentState(x.text("state")), Namespace: x.text("namespace"), Limit: x.int("limit"), Offset: x.int("offset"),
	})
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.IncidentList{Incidents: convert(list, apiv1.FromIncident), Pagination: x.pageOf(len(list), more)})
}

func (s *server) oneIncident(x *request) error {
	id := x.id("incident_id")
	d, err := s.db.Incident(x.ctx, id)
	return respondWith(x, http.StatusOK, d, err, apiv1.FromIncidentDetail)
}

func (s *server) tryMessage(x *request, req apiv1.TryMessage) error {
	if err := x.mayUse(req.Namespace); err != nil {
		return err
	}
	tried, err := s.teller.SendTest(x.ctx, emission.Trial{
		Namespace: req.Namespace, Template: req.Template, Severity: tasker.Severity(req.Severity), Reason: tasker.Reason(req.Reason), Cause: req.Cause, Actor: x.actor(req.By),
	})
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.TriedMessage{SubjectID: tried.SubjectID.String(), Routes: append([]int{}, tried.Routes...), Sinks: append([]string{}, tried.Sinks...)})
}
