package web

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/endpoint"
)

const taskRequestsPath = "/task-requests"

// refusedRequests returns a filter for refused requests.
func refusedRequests(limit, offset int) tasker.TaskRequestFilter {
	return tasker.TaskRequestFilter{Refused: new(true), Limit: limit, Offset: offset}
}

// showTaskRequests lists the refused requests for tasks, newest first.
func (s *server) showTaskRequests(req *request) (*view, error) {
	offset := req.query().readOffset()
	list, more := loadPage(req, s.DB.TaskRequests, refusedRequests(pageRows, offset))
	p := listPage[tasker.TaskRequest]{list, req.newPager(offset, pageRows, len(list), more)}
	return &view{page: "taskrequests", title: "Refused requests", nav: "Tasks", live: true, body: p}, nil
}

// RefusesRequests reports whether the caller can see a refused request for a task, for the banner.
// It returns false if the query fails.
func (f pageFrame) RefusesRequests() bool {
	if !f.req.canSee(access.ReadTasks) {
		return false
	}
	ctx, cancel := context.WithTimeout(f.req.withPermission(access.ReadTasks).Context(), bannerTime)
	defer cancel()
	n, err := f.server.DB.RefusedTaskRequests(ctx) // an index contains only these
	var list []tasker.TaskRequest
	if n > 0 {
		list, _, err = f.server.DB.TaskRequests(ctx, refusedRequests(1, 0))
	}
	if err != nil {
		f.server.Log.WarnContext(ctx, "banner of refused requests failed", "err", err)
	}
	return len(list) > 0
}

// dismissForm is the form to delete a request for a task.
type dismissForm struct {
	form
	tasker.TaskRequest
}

func (s *server) newDismissForm(req *request) *dismissForm {
	r := loadByID(req, "task", s.findTaskRequest)
	f := req.newForm(form{
		page: "dismiss", title: "Dismiss request for " + r.Namespace + "/" + r.Name, nav: "Tasks",
		Button: "Dismiss this request", Shortcut: "x", Danger: true, Back: Root + taskRequestsPath,
	})
	f.Command = f.newCall(endpoint.DeleteTaskRequest, "task dismiss", r.TaskUUID.String()).format()
	return &dismissForm{form: f, TaskRequest: r}
}

func (s *server) findTaskRequest(ctx context.Context, id tasker.ID) (tasker.TaskRequest, error) {
	r, err := s.DB.TaskRequest(ctx, id)
	switch {
	case err != nil:
		return tasker.TaskRequest{}, err
	case r == nil:
		return tasker.TaskRequest{}, tasker.Errorf(tasker.NotFound, "no request for task %s: it was created, dismissed or never requested", id)
	}
	return *r, nil
}

func (f *dismissForm) do(req *request) (*view, error) {
	return &view{next: f.Back, note: "The request was dismissed."}, f.DB.DeleteTaskRequest(req.Context(), f.TaskUUID, f.Actor)
}
