package web

import (
	"net/http"
	"slices"
)

// routes is the table of all pages.
func (s *server) routes() []route {
	return slices.Concat(
		s.queueRoutes(), s.investigationRoutes(), s.entryUpdateRoutes(), s.stepActionRoutes(), s.taskRoutes(),
		[]route{{http.MethodPost, namePath, s.setName}},
	)
}
