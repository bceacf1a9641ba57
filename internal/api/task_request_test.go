package api_test

import (
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// A task that is requested in SQL is awaited before it exists. A refused one is listed, explained
// and dismissed.
func TestTaskRequests(t *testing.T) {
	t.Parallel()
	h, _ := guarded(t)
	root := h.bearer("root", "admin@*")
	h.Space = "shop"
	want[any](h, http.StatusCreated, "POST", "/v1/templates", chain, "Content-Type: application/yaml", root)
	request := func(context string) (id string) {
		h.Must(h.Admin().QueryRow(t.Context(), `SELECT tasker.create_task('shop', 'order', $1::text::jsonb, idempotency_key => md5($1::text))`, context).Scan(&id))
		return id
	}
	good, bad := request(`{"order": 1}`), request(`{"order": "secret"}`)
	h.wantError(http.StatusNotFound, "NOT_FOUND", "is not created yet", "GET", "/v1/tasks/"+good+"?wait_ms=1", nil, root)
	if l := want[apiv1.TaskRequestList](h, http.StatusOK, "GET", "/v1/task-requests?refused=false", nil, root); len(l.Requests) != 2 {
		t.Errorf("pending: %+v", l)
	}
	answered := make(chan reply, 1)
	go func() { answered <- h.send("GET", "/v1/tasks/"+good+"?wait_ms=60000", nil, root) }()
	h.Tick()
	want[tasker.Task](h, http.StatusOK, "DELETE", "/v1/tasks/"+good, nil, root)
	if got := <-answered; got.status != http.StatusOK || !strings.Contains(got.text, `"cancelled"`) {
		t.Errorf("answered with %d %s", got.status, got.text)
	}
	l := want[apiv1.TaskRequestList](h, http.StatusOK, "GET", "/v1/task-requests?refused=true&namespace=shop", nil, root)
	if len(l.Requests) != 1 || l.Requests[0].TaskUUID.String() != bad || l.Requests[0].ErrorCode != "INVALID" || !strings.Contains(string(l.Requests[0].ErrorMessage), "order") {
		t.Errorf("refused: %+v", l)
	}
	h.wantError(http.StatusNotFound, "NOT_FOUND", "refused: INVALID: ", "GET", "/v1/tasks/"+bad+"?wait_ms=60000", nil, root)
	viewer, other := h.bearer("viewer", "viewer@shop"), h.bearer("other", "admin@attic")
	if got := h.send("GET", "/v1/task-requests", nil, viewer); got.status != http.StatusOK || strings.Contains(got.text, "secret") || !strings.Contains(got.text, "[hidden]") {
		t.Errorf("a viewer gets %d %s", got.status, got.text)
	}
	if got := h.send("GET", "/v1/task-requests", nil, other); got.status != http.StatusOK || strings.Contains(got.text, bad) {
		t.Errorf("another namespace gets %d %s", got.status, got.text)
	}
	h.wantError(http.StatusForbidden, "FORBIDDEN", "tasks:cancel", "DELETE", "/v1/task-requests/"+bad, nil, viewer)
	h.wantError(http.StatusNotFound, "NOT_FOUND", "not found", "DELETE", "/v1/task-requests/"+bad, nil, other)
	want[any](h, http.StatusNoContent, "DELETE", "/v1/task-requests/"+bad, nil, root)
	h.wantError(http.StatusNotFound, "NOT_FOUND", "no request for task", "DELETE", "/v1/task-requests/"+good, nil, root)
}
