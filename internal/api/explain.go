package api

import (
	"net/http"

	"tasker.example/tasker/apiv1"
)

func (s *server) explainQueue(x *request) error {
	e, err := s.explain.ExplainQueue(x.ctx, x.pathText("namespace"), x.pathText("handler"))
	return respondWith(x, http.StatusOK, e, err, apiv1.FromExplanation)
}
