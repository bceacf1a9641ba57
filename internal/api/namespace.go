package api

import (
	"net/http"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

const namespacePath = "/v1/namespaces/{namespace}"

// namespaceRoutes are about namespaces as a whole.
func (s *server) namespaceRoutes() []*route {
	const tag = "workers"
	return []*route{
		{
			method: "GET", path: "/v1/namespaces", id: "listNamespaces", class: overload.Reads, needs: access.ReadWorkers, tag: tag,
			summary: "The weights of namespaces in claims of several",
			about:   "A namespace that is not listed has the weight 1.",
			answers: map[int]any{http.StatusOK: apiv1.NamespaceList{}},
			serve:   s.listNamespaces,
		},
		{
			method: "PUT", path: namespacePath, id: "setNamespace", class: overload.Operations, needs: access.Administer, tag: tag,
			summary: "Give a namespace its weight: its share of the workers that serve others as well",
			about:   "For administrators of all namespaces: safe to repeat. All servers go by it within a second. It is recorded in the audit log.",
			body:    apiv1.SetNamespace{},
			answers: map[int]any{http.StatusOK: apiv1.Namespace{}},
			serve:   withBody(s.setNamespace),
		},
		{
			method: "DELETE", path: namespacePath, id: "deleteNamespace", class: overload.Operations, needs: access.Administer, tag: tag,
			summary: "Have a namespace count 1 again",
			about:   "For administrators of all namespaces. Its tasks stay as they are. It is recorded in the audit log.",
			answers: map[int]any{http.StatusNoContent: nil},
			serve:   s.deleteNamespace,
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
	namespace := x.word("namespace")
	w, err := s.engine.SetNamespaceWeight(x.ctx, namespace, req.Weight, x.actorOrUnknown())
	return respondWith(x, http.StatusOK, w, err, apiv1.FromNamespaceWeight)
}

func (s *server) deleteNamespace(x *request) error {
	namespace := x.word("namespace")
	if err := s.engine.DeleteNamespaceWeight(x.ctx, namespace, x.actorOrUnknown()); err != nil {
		return err
	}
	return x.answer(http.StatusNoContent, nil)
}
