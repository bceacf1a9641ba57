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
			method: "GET", path: "/v1/namespaces", id: "listNamespaces", class: overload.Reads, needs: access.ReadWorkers, tag: tag,
			summary: "List namespaces with custom weights",
			about:   "A namespace that is not listed has weight 1.",
			answers: ok(apiv1.NamespaceList{}), serve: s.listNamespaces,
		},
		{
			method: "PUT", path: namespacePath, id: "setNamespace", class: overload.Operations, needs: access.Administer, tag: tag,
			summary: "Set the weight of a namespace: its share of workers that serve several namespaces",
			about:   "For administrators of all namespaces. Safe to repeat. All servers apply it within a second. It is recorded in the audit log.",
			body:    apiv1.SetNamespace{}, answers: ok(apiv1.Namespace{}), serve: withBody(s.setNamespace),
		},
		{
			method: "DELETE", path: namespacePath, id: "deleteNamespace", class: overload.Operations, needs: access.Administer, tag: tag,
			summary: "Reset a namespace to weight 1",
			about:   "For administrators of all namespaces. Its tasks do not change. It is recorded in the audit log.",
			answers: noContent, serve: s.deleteNamespace,
		},
	}
}

func (s *server) listNamespaces(x *request) error {
	list, err := s.db.NamespaceWeights(x.ctx)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.NamespaceList{Namespaces: convert(list, apiv1.FromNamespaceWeight)})
}

func (s *server) setNamespace(x *request, req apiv1.SetNamespace) error {
	w, err := s.engine.SetNamespaceWeight(x.ctx, x.word("namespace"), req.Weight, x.actorOrUnknown(""))
	return respondWith(x, http.StatusOK, w, err, apiv1.FromNamespaceWeight)
}

func (s *server) deleteNamespace(x *request) error {
	if err := s.engine.DeleteNamespaceWeight(x.ctx, x.word("namespace"), x.actorOrUnknown("")); err != nil {
		return err
	}
	return x.answer(http.StatusNoContent, nil)
}
