package api

import (
	"net/http"
)

func (s *server) explainQueue(x *request) error {
	e, err := s.explain.ExplainQueue(x.ctx, x.pathText("namespace"), x.pathText("handler"))
	return x.respondResult(http.StatusOK, e, err)
}
