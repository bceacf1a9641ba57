package api

import (
	"net/http"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

const namespacePath = "/v1/namespaces/{namespace}"

func (s *server) namespaceRoutes() []*route {
	const tag = "workers"
	return []*route{
		{
			method: "GET", path: "/v1/namespaces", id: "listNamespaces", class: overload.Reads, permission: access.ReadWorkers, tag: tag,
			summary:   "List namespaces with custom weights",
			doc:       "A namespace that is not listed has weight 1.",
			responses: okResponse(apiv1.NamespaceList{}), serve: s.listNamespaces,
		},
		{
			method: "PUT", path: namespacePath, id: "setNamespace", class: overload.Operations, permission: access.Administer, tag: tag,
			summary: "Set the weight of a namespace: its share of workers that serve several namespaces",
			doc:     "For administrators of all namespaces. Safe to repeat. All servers apply it within a second. It is recorded in the audit log.",
			body:    apiv1.SetNamespace{}, responses: okResponse(apiv1.Namespace{}), serve: withBody(s.setNamespace),
		},
		{
			method: "DELETE", path: namespacePath, id: "deleteNamespace", class: overload.Operations, permission: access.Administer, tag: tag,
			summary:   "Reset a namespace to weight 1",
			doc:       "For administrators of all namespaces. Its tasks do not change. It is recorded in the audit log.",
			responses: noContent, serve: s.deleteNamespace,
		},
	}
}

func (s *server) listNamespaces(x *request) error {
	list, err := s.db.NamespaceWeights(x.ctx)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.NamespaceList{Namespaces: convert(list, apiv1.FromNamespaceWeight)})
}

func (s *server) setNamespace(x *request, req apiv1.SetNamespace) error {
	w, err := s.engine.SetNamespaceWeight(x.ctx, x.pathText("namespace"), req.Weight, x.resolveActorOrUnknown(""))
	return respondWith(x, http.StatusOK, w, err, apiv1.FromNamespaceWeight)
}

func (s *server) deleteNamespace(x *request) error {
	if err := s.engine.DeleteNamespaceWeight(x.ctx, x.pathText("namespace"), x.resolveActorOrUnknown("")); err != nil {
		return err
	}
	return x.respond(http.StatusNoContent, nil)
}
