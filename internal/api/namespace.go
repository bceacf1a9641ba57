package api

import (
	"net/http"

	"tasker.example/tasker/apiv1"
)

func (s *server) listNamespaces(x *request) error {
	list, err := s.db.NamespaceWeights(x.ctx)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.NamespaceList{Namespaces: orEmpty(list)})
}

func (s *server) setNamespace(x *request, req apiv1.SetNamespace) error {
	w, err := s.engine.SetNamespaceWeight(x.ctx, x.pathText("namespace"), req.Weight, x.resolveActorOrUnknown(""))
	return x.respondResult(http.StatusOK, w, err)
}

func (s *server) deleteNamespace(x *request) error {
	if err := s.engine.DeleteNamespaceWeight(x.ctx, x.pathText("namespace"), x.resolveActorOrUnknown("")); err != nil {
		return err
	}
	return x.respond(http.StatusNoContent, nil)
}
