package web

import (
	"net/http"
	"slices"
)

// routes is the table of all pages.
func (s *server) routes() []route {
	return slices.Concat(
		s.queueRoutes(), s.investigationRoutes(), s.entryUpdateRoutes(), s.stepActionRoutes(), s.taskRoutes(),
		s.stalenessRoutes(), s.dashboardRoutes(), s.workerRoutes(), s.emissionRoutes(), s.auditRoutes(),
		[]route{{http.MethodPost, namePath, s.setName}},
	)
}
