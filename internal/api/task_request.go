package api

import (
	"context"
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

func (s *server) listTaskRequests(x *request, f tasker.TaskRequestFilter) error {
	list, more, err := s.db.TaskRequests(x.ctx, f)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.TaskRequestList{Requests: orEmpty(list), Pagination: newPagination(apiv1.Page{Limit: f.Limit, Offset: f.Offset}, len(list), more)})
}

func (s *server) deleteTaskRequest(x *request) error {
	if err := s.db.DeleteTaskRequest(x.ctx, x.pathUUID("task_uuid"), x.resolveActorOrUnknown("")); err != nil {
		return err
	}
	return x.respond(http.StatusNoContent, nil)
}

// explainMissing adds to the error for an unknown task that it is requested.
func (s *server) explainMissing(ctx context.Context, id tasker.ID, err error) error {
	if tasker.CodeOf(err) != tasker.NotFound {
		return err
	}
	r, failed := s.db.TaskRequest(ctx, id)
	switch {
	case failed != nil:
		return failed
	case r == nil:
		return err
	case r.RefusedAt != nil:
		return tasker.Errorf(tasker.NotFound, "task %s not found: it was requested in SQL, and refused: %s: %s", id, r.ErrorCode, r.ErrorMessage)
	default:
		return tasker.Errorf(tasker.NotFound, "task %s not found: it was requested in SQL, and is not created yet", id)
	}
}
