package web

import "net/http"

func (s *server) queueRoutes() []route {
	return []route{{http.MethodGet, "/{$}", s.queue}}
}

// queuePage is what needs a human, the most urgent first.
type queuePage struct{}

func (s *server) queue(_ *exchange) (*view, error) {
	return &view{page: "queue", title: "Investigation queue", nav: "Queue", live: true, body: queuePage{}}, nil
}
