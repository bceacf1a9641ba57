package api_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"

	"github.com/google/uuid"

	"tasker.example/tasker"
)

// completed makes a task of two steps, of which the first has returned a result.
func (h *harness) completed(result string) (task string, steps []tasker.Step) {
	h.Helper()
	_, _, err := h.Engine.RegisterTemplate(h.Context(), tasker.Template{Namespace: "shop", Name: "two", Version: "1.0.0", Steps: []tasker.StepTemplate{
		{Name: "a b", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "run"}, Retry: tasker.DefaultRetry()},
		{Name: "second", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "run"}, Retry: tasker.DefaultRetry(), Dependencies: []string{"a b"}},
	}}, "")
	h.Must(err)
	created, err := h.Engine.CreateTasks(h.Context(), []tasker.NewTask{{Namespace: "shop", Name: "two"}})
	h.Must(err)
	w, err := h.Engine.RegisterWorker(h.Context(), tasker.WorkerSpec{Name: "w", Namespaces: []string{"shop"}, Handlers: []string{"run"}})
	h.Must(err)
	list, err := h.Engine.Claim(h.Context(), w.WorkerUUID, 1, 0)
	if err != nil || len(list) != 1 {
		h.Fatalf("claimed %d: %v", len(list), err)
	}
	if _, err := h.Engine.Report(h.Context(), w.WorkerUUID, []tasker.Outcome{{Lease: list[0].Lease(), Success: true, Result: json.RawMessage(result)}}, 0); err != nil {
		h.Fatal(err)
	}
	task = created[0].TaskUUID.String()
	return task, want[[]tasker.Step](h, http.StatusOK, "GET", "/v1/tasks/"+task+"/workflow_steps", nil)
}

// Items are handed a context without their list; the whole is read here.
func TestTheContextOfATask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, _ := h.completed(`1`)
	id, err := uuid.Parse(task)
	h.Must(err)
	got := h.send("GET", tasker.ContextPath(id), nil)
	whole := want[tasker.Task](h, http.StatusOK, "GET", "/v1/tasks/"+task, nil)
	if got.status != http.StatusOK || got.text != string(whole.Context) || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %v %s, want %s", got.status, got.header, got.text, whole.Context)
	}
	if again := h.send("GET", tasker.ContextPath(id), nil, "If-None-Match: "+got.header.Get("ETag")); again.status != http.StatusNotModified || again.text != "" {
		t.Errorf("%d %s", again.status, again.text)
	}
	for path, status := range map[string]int{"/v1/tasks/none/context": http.StatusBadRequest, tasker.ContextPath(tasker.NewID()): http.StatusNotFound} {
		if got := h.send("GET", path, nil); got.status != status {
			t.Errorf("%s: %d %s, want %d", path, got.status, got.text, status)
		}
	}
}

func TestTheResultOfAStep(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, steps := h.completed(`{"n":[1,2]}`)
	path := "/v1/tasks/" + task + "/results/"
	id, err := uuid.Parse(task)
	h.Must(err)
	if where := tasker.ResultPath(id, steps[0].UUID.String()); where != path+steps[0].UUID.String() { // as answers and results name it
		t.Errorf("a result is said to be at %s", where)
	}
	byID := h.send("GET", path+steps[0].UUID.String(), nil)
	if byID.status != http.StatusOK || byID.text != `{"n": [1, 2]}` || byID.header.Get("Content-Type") != "application/json" ||
		byID.header.Get("Content-Length") != strconv.Itoa(len(byID.text)) {
		t.Errorf("%d %v %s", byID.status, byID.header, byID.text)
	}
	byName := h.send("GET", path+"a%20b", nil)
	if tag := byName.header.Get("ETag"); byName.text != byID.text || tag == "" || tag != byID.header.Get("ETag") {
		t.Errorf("%d %v %s", byName.status, byName.header, byName.text)
	}
	if again := h.send("GET", path+"a%20b", nil, "If-None-Match: "+byName.header.Get("ETag")); again.status != http.StatusNotModified || again.text != "" {
		t.Errorf("%d %s", again.status, again.text)
	}
	for name, status := range map[string]int{
		path + "second":                http.StatusNotFound, // has none yet
		path + "third":                 http.StatusNotFound,
		path + tasker.NewID().String(): http.StatusNotFound,
		"/v1/tasks/none/results/a":     http.StatusBadRequest,
		"/v1/tasks/" + steps[0].UUID.String() + "/results/a": http.StatusNotFound,
	} {
		if got := h.send("GET", name, nil); got.status != status {
			t.Errorf("%s: %d %s, want %d", name, got.status, got.text, status)
		}
	}
	_, err = h.Admin().Exec(t.Context(), `
		UPDATE tasker.workflow_steps SET results_bytes = NULL, results = jsonb_build_object('result', (SELECT jsonb_agg(1e308) FROM generate_series(1, 60000)))
		WHERE name = 'a b'`)
	h.Must(err)
	if got := h.send("GET", path+"a%20b", nil); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d, want 413: %.200s", got.status, got.text)
	}
}
