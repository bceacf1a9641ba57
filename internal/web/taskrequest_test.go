package web_test

import (
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
)

// refuseRequest requests a task in SQL and records that servers refused to create it.
func (h *harness) refuseRequest(name, message string) (id tasker.ID) {
	h.Helper()
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT tasker.create_task('shop', $1, '{"secret": 7}', initiator => 'cron', idempotency_key => 'k-7')`, name).Scan(&id))
	h.Must(h.DB.RefuseTaskRequest(h.Context(), id, tasker.Invalid, message))
	return id
}

// The first page and the list of tasks link to the refused requests, until they are dismissed.
func TestRefusedRequestsAreListedAndDismissed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	const link = `href="/ui/task-requests"`
	h.lacks(h.get("/ui/"), link)
	h.lacks(h.get("/ui/tasks"), link)
	h.sees(h.get("/ui/task-requests"), "No refused requests")
	var pending tasker.ID
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT tasker.create_task('shop', 'order')`).Scan(&pending))
	h.lacks(h.get("/ui/task-requests"), pending.String())
	id := h.refuseRequest("order", "order: <must> be a number")
	h.sees(h.get("/ui/"), link)
	h.sees(h.get("/ui/tasks"), link)
	path := "/ui/task-requests/" + id.String() + "/dismiss"
	h.sees(h.get("/ui/task-requests"), "shop/order", "order: &lt;must&gt; be a number", "cron", "k-7", "secret", id.String(), path)
	h.sees(h.get(path), "What will happen", "not created, as before", "order: &lt;must&gt; be", "task dismiss "+id.String(), "-X DELETE", "/v1/task-requests/"+id.String())
	h.refused(h.post(path), http.StatusBadRequest, "Your name is missing")
	r := h.post(path, "actor=Kim")
	h.at(r, "/ui/task-requests")
	h.sees(r, "The request was dismissed.", "No refused requests")
	h.lacks(h.get("/ui/"), link)
	h.refused(h.post(path, "actor=Kim"), http.StatusNotFound, "No request for task")
	h.sees(h.get("/ui/task-requests/"+pending.String()+"/dismiss"), "so that the task is not created")
	list, _, err := h.DB.AuditEvents(t.Context(), "task_request.dismissed", 0, 10)
	if err != nil || len(list) != 1 || list[0].Actor != "Kim" || list[0].Subject != id.String() {
		t.Errorf("the audit log has %+v, %v", list, err)
	}
}

// The pages show a request to those who may read its tasks, its payloads to those who may read
// them, and the form to those who may cancel its tasks.
func TestRefusedRequestsOfOtherNamespacesAreHidden(t *testing.T) {
	t.Parallel()
	st := newStuck(t, asking)
	id := st.refuseRequest("order", "order: must be a number")
	path := "/ui/task-requests/" + id.String() + "/dismiss"
	bank := st.signedIn("bank", "admin@bank")
	for _, page := range []string{"/ui/", "/ui/tasks", "/ui/task-requests"} {
		if r := bank.get(page); strings.Contains(r.text, "were refused") || strings.Contains(r.text, id.String()) {
			t.Errorf("%s shows a request of another namespace", page)
		}
	}
	bank.refused(bank.get(path), http.StatusNotFound, "not found")
	viewer := st.signedIn("viewer", "viewer@shop")
	r := viewer.get("/ui/task-requests")
	viewer.sees(r, id.String(), "[hidden]")
	viewer.lacks(r, "secret")
	viewer.lacks(r, "Dismiss…")
	viewer.refused(viewer.post(path), http.StatusForbidden, "tasks:cancel")
	developer := st.signedIn("developer", "developer@shop")
	developer.sees(developer.get("/ui/task-requests"), "must be a number", "secret", path)
	if r := developer.post(path); r.status != http.StatusSeeOther {
		t.Errorf("a developer gets %d %s", r.status, r.text)
	}
	developer.sees(developer.get("/ui/task-requests"), "No refused requests")
}
