package api

import (
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/emission"
)

func (s *server) listIncidents(x *request, f tasker.IncidentFilter) error {
	list, more, err := s.db.Incidents(x.ctx, f)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.IncidentList{Incidents: orEmpty(list), Pagination: newPagination(apiv1.Page{Limit: f.Limit, Offset: f.Offset}, len(list), more)})
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
