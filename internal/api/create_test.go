package api_test

import (
	"net/http"
	"testing"

	"tasker/apiv1"
	"tasker/internal/pgtest"
)

// A task that was created is answered as created, even if the database cannot be
// read any more: who is told otherwise would create it again.
func TestWhatWasCreatedIsAnsweredThoughItCannotBeRead(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	cutter := pgtest.NewCutter(t, d.URL)
	h := houseAt(t, cutter.URL)
	h.register(chain)
	cutter.Cut(100, "get_step_readiness_status($1", false)
	got := want[apiv1.Task](h, http.StatusCreated, "POST", "/v1/tasks", map[string]any{
		"namespace": "shop", "name": "order", "context": map[string]any{"order": 7}, "tags": []string{"a"},
	})
	if cutter.Count() == 0 {
		t.Fatal("no connection was broken")
	}
	if got.Status != "steps_in_process" || len(got.Steps) != 2 || got.Steps[0].CurrentState != "enqueued" || string(got.Context) != `{"order":7}` {
		t.Errorf("answered %+v", got)
	}
	cutter.Cut(0, "", false)
	read := want[apiv1.Task](h, http.StatusOK, "GET", "/v1/tasks/"+got.TaskUUID, nil)
	if !read.CreatedAt.Equal(got.CreatedAt) || read.TotalSteps != 2 {
		t.Errorf("read %+v", read)
	}
	if list := want[apiv1.TaskList](h, http.StatusOK, "GET", "/v1/tasks", nil); len(list.Tasks) != 1 {
		t.Errorf("%d tasks", len(list.Tasks))
	}
}
