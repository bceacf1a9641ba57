package api

import (
	"context"
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

const taskRequestPath = "/v1/task-requests"

func (s *server) taskRequestRoutes() []*route {
	return []*route{
		{
			method: "GET", path: taskRequestPath, id: "listTaskRequests", class: overload.Reads, permission: access.ReadTasks, tag: "tasks",
			summary: "List tasks that were requested in SQL and are not created, newest first",
			doc:     "Requests of the SQL function tasker.create_task. A server creates their tasks within a second, or refuses a request and keeps it with the error.",
			params: []param{
				textParam("namespace", "Filter by namespace.", 128), boolParam("refused", "Filter by refused or pending requests."), limitParam(defaultLimit), offsetParam(),
			},
			responses: okResponse(apiv1.TaskRequestList{}), serve: s.listTaskRequests,
		},
		{
			method: "DELETE", path: taskRequestPath + "/{task_uuid}", id: "deleteTaskRequest", class: overload.Operations, permission: access.CancelTasks, tag: "tasks",
			summary:   "Dismiss a task that was requested in SQL",
			doc:       "A pending request is withdrawn: its task is not created. It is recorded in the audit log.",
			responses: noContent, serve: s.deleteTaskRequest,
		},
	}
}

func (s *server) listTaskRequests(x *request) error {
	list, more, err := s.db.TaskRequests(x.ctx, tasker.TaskRequestFilter{
		Namespace: x.queryText("namespace"), Refused: x.queryBool("refused"), Limit: x.queryInt("limit"), Offset: x.queryInt("offset"),
	})
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.TaskRequestList{Requests: convert(list, apiv1.FromTaskRequest), Pagination: x.newPagination(len(list), more)})
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
