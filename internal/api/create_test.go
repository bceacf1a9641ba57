package api_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

// A new task is answered as it was stored, which is as it would be read.
func TestNewTaskIsReturnedWithoutReadingIt(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	cutter := pgtest.NewCutter(t, d.URL)
	h := serve(t, enginetest.At(t, cutter.URL, postgres.Options{}))
	h.register(chain)
	cutter.Cut(100, "get_step_readiness_status($1", false)
	got := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", map[string]any{
		"namespace": "shop", "name": "order", "context": map[string]any{"order": 7, "b": []any{1e2}}, "tags": []string{"a"},
	})
	if n := cutter.Count(); n != 0 {
		t.Errorf("it was read %d times", n)
	}
	cutter.Cut(0, "", false)
	if diff := cmp.Diff(want[tasker.Task](h, http.StatusOK, "GET", "/v1/tasks/"+got.UUID.String(), nil), got); diff != "" {
		t.Errorf("(-read +answered):\n%s", diff)
	}
}

// A task that was created is answered as created, even if there is more to say of it and
// the database cannot be read: a caller that gets an error would create it again.
func TestCreatedTaskIsReturnedWhenItCannotBeRead(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	cutter := pgtest.NewCutter(t, d.URL)
	h := serve(t, enginetest.At(t, cutter.URL, postgres.Options{}))
	h.Template("loop", enginetest.Step("a", "b"), enginetest.Step("b", "a"))
	cutter.Cut(100, "get_step_readiness_status($1", false)
	got := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", map[string]any{
		"namespace": enginetest.Namespace, "name": "loop", "context": map[string]any{"order": 7}, "tags": []string{"a"},
	})
	if cutter.Count() == 0 {
		t.Fatal("no connection was broken")
	}
	if got.State != "error" || len(got.Steps) != 2 || got.Steps[0].State != "pending" || string(got.Context) != `{"order":7}` {
		t.Errorf("answered %+v", got)
	}
	cutter.Cut(0, "", false)
	read := want[tasker.Task](h, http.StatusOK, "GET", "/v1/tasks/"+got.UUID.String(), nil)
	if !read.CreatedAt.Equal(got.CreatedAt) || read.Total != 2 {
		t.Errorf("read %+v", read)
	}
	if list := want[apiv1.TaskList](h, http.StatusOK, "GET", "/v1/tasks", nil); len(list.Tasks) != 1 {
		t.Errorf("%d tasks", len(list.Tasks))
	}
}

// A request of an operator under a key is applied once over HTTP, too.
func TestAnIdempotencyKeyOfAnOperator(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	h.createTask(1)
	worker := h.worker()
	step := h.claim(worker, map[string]any{"max": 1})[0]
	path := "/v1/tasks/" + step.TaskUUID + "/workflow_steps/" + step.StepUUID
	reset := map[string]any{"action_type": "reset_for_retry", "reason": "stuck", "reset_by": "ann", "interrupt": true}
	want[tasker.Step](h, http.StatusOK, "PATCH", path, reset, "Idempotency-Key: k1")
	held := h.claim(worker, map[string]any{"max": 1})[0]
	if got := want[tasker.Step](h, http.StatusOK, "PATCH", path, reset, "Idempotency-Key: k1"); got.State != "in_progress" {
		t.Errorf("the repeated request left the step %s", got.State)
	}
	reset["reason"] = "another"
	h.wantError(http.StatusConflict, "CONFLICT", "was used for a different request", "PATCH", path, reset, "Idempotency-Key: k1")
	if !h.taken(worker, held, held.LeaseToken) {
		t.Error("the attempt lost its lease")
	}
	look := map[string]any{"reason": "look", "created_by": "ann"}
	opened := want[tasker.Entry](h, http.StatusCreated, "POST", "/v1/dlq/task/"+step.TaskUUID, look, "Idempotency-Key: k3")
	if again := want[tasker.Entry](h, http.StatusCreated, "POST", "/v1/dlq/task/"+step.TaskUUID, look, "Idempotency-Key: k3"); again.UUID.String() != opened.UUID.String() {
		t.Errorf("the repeated request opened %s, want %s as before", again.UUID.String(), opened.UUID.String())
	}
	h.wantError(http.StatusConflict, "CONFLICT", "has an open investigation", "POST", "/v1/dlq/task/"+step.TaskUUID, look, "Idempotency-Key: k4")
	note := map[string]any{"resolution_notes": "seen", "updated_by": "ann"}
	for range 2 {
		want[apiv1.UpdatedEntry](h, http.StatusOK, "PATCH", "/v1/dlq/entry/"+opened.UUID.String(), note, "Idempotency-Key: k2")
	}
	if e := want[tasker.Entry](h, http.StatusOK, "GET", "/v1/dlq/entry/"+opened.UUID.String(), nil); len(e.History) != 2 {
		t.Errorf("history %+v, want created and one note", e.History)
	}
}
