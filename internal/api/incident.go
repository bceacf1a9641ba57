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
			method: "GET", path: "/v1/incidents", id: "listIncidents", class: overload.Reads, permission: access.ReadInvestigations, tag: tag,
			summary: "List incidents: cases of one namespace that were notified together, newest first",
			params: []param{
				choiceParam("state", "Filter by state.", tasker.IncidentStates()), textParam("namespace", "Only those of this namespace.", 128),
				limitParam(defaultLimit), offsetParam(),
			},
			responses: okResponse(apiv1.IncidentList{}), serve: s.listIncidents,
		},
		{
			method: "GET", path: incidentPath, id: "getIncident", class: overload.Reads, permission: access.ReadInvestigations, tag: tag,
			summary:   "Get an incident with its cases and its notifications",
			responses: okResponse(apiv1.IncidentDetail{}),
			serve:     newGetHandler("incident_id", s.db.Incident, apiv1.FromIncidentDetail),
		},
		{
			method: "POST", path: "/v1/messages/test", id: "tryMessage", class: overload.Operations, permission: access.ResendEvents, tag: tag,
			summary: "Send a test notification",
			doc:     "For operators. It goes to the sinks of the first matching route, as message.test. It is recorded in the audit log.",
			body:    apiv1.TryMessage{}, responses: okResponse(apiv1.TriedMessage{}), serve: withBody(s.tryMessage),
		},
	}
}

func (s *server) listIncidents(x *request) error {
	list, more, err := s.db.Incidents(x.ctx, tasker.IncidentFilter{
		State: tasker.IncidentState(x.queryText("state")), Namespace: x.queryText("namespace"), Limit: x.queryInt("limit"), Offset: x.queryInt("offset"),
	})
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.IncidentList{Incidents: convert(list, apiv1.FromIncident), Pagination: x.newPagination(len(list), more)})
}

func (s *server) tryMessage(x *request, req apiv1.TryMessage) error {
	if err := x.checkNamespace(req.Namespace); err != nil {
		return err
	}
	tried, err := s.notifier.SendTest(x.ctx, emission.TestMessage{
		Namespace: req.Namespace, Template: req.Template, Severity: tasker.Severity(req.Severity), Reason: tasker.Reason(req.Reason), Cause: req.Cause, Actor: x.resolveActor(req.By),
	})
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.TriedMessage{SubjectID: tried.SubjectID.String(), Routes: append([]int{}, tried.Routes...), Sinks: append([]string{}, tried.Sinks...)})
}
