package api

import (
	"net/http"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

func (s *server) explainRoutes() []*route {
	const tag = "explain"
	return []*route{
		{
			method: "GET", path: "/v1/explain/{id}", id: "explain", class: overload.Reads, needs: access.ReadTasks, tag: tag,
			summary: "Why something is where it is: the fact that keeps it there, since when, what would let it go on, and whose turn it is",
			about: "The id is that of a task, a step, an investigation, a case, an operation or a hold. Investigations, cases and operations need investigations:read as well. " +
				"Without payloads:read there are no messages of errors.",
			answers: map[int]any{http.StatusOK: apiv1.Explanation{}},
			serve:   s.explainID,
		},
		{
			method: "GET", path: "/v1/explain/queue/{namespace}/{handler}", id: "explainQueue", class: overload.Reads, needs: access.ReadWorkers, tag: tag,
			summary: "Why steps of a namespace and a handler wait: what waits, and the workers for it",
			answers: map[int]any{http.StatusOK: apiv1.Explanation{}},
			serve:   s.explainQueue,
		},
	}
}

func (s *server) explainID(x *request) error {
	id := x.id("id")
	e, err := s.explain.Explain(x.ctx, id)
	return respondWith(x, http.StatusOK, e, err, apiv1.FromExplanation)
}

func (s *server) explainQueue(x *request) error {
	namespace := x.word("namespace")
	handler := x.word("handler")
	e, err := s.explain.Queue(x.ctx, namespace, handler)
	return respondWith(x, http.StatusOK, e, err, apiv1.FromExplanation)
}
