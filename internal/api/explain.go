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
			method: "GET", path: "/v1/explain/{id}", id: "explain", class: overload.Reads, permission: access.ReadTasks,
			tag:     tag,
			summary: "Explain why something is not progressing: the condition, since when, what would unblock it, and who acts next",
			doc: "The id is that of a task, step, investigation, case, operation or hold. Investigations, cases and operations also need investigations:read. " +
				"Without payloads:read error messages are omitted.",
			responses: okResponse(apiv1.Explanation{}), serve: newGetHandler("id", s.explain.Explain, apiv1.FromExplanation),
		},
		{
			method: "GET", path: "/v1/explain/queue/{namespace}/{handler}", id: "explainQueue", class: overload.Reads, permission: access.ReadWorkers, tag: tag,
			summary:   "Explain why the steps of a queue are waiting, with the live workers for it",
			responses: okResponse(apiv1.Explanation{}), serve: s.explainQueue,
		},
	}
}

func (s *server) explainQueue(x *request) error {
	e, err := s.explain.ExplainQueue(x.ctx, x.pathText("namespace"), x.pathText("handler"))
	return respondWith(x, http.StatusOK, e, err, apiv1.FromExplanation)
}
