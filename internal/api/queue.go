package api

import (
	"net/http"

	"tasker.example/tasker/apiv1"
)

// queuesLimit is how many queues are listed by default.
const queuesLimit = 100

func (s *server) listQueues(x *request) error {
	list, err := s.db.Queues(x.ctx, x.text("namespace"), x.int("limit"))
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, convert(list, apiv1.FromQueue))
}
