package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
)

// A request that waits for a task is answered when the task ends, here on another server. It
// occupies no slot meanwhile.
func TestWaitForATask(t *testing.T) {
	t.Parallel()
	gate := overload.New(overload.Options{Limits: map[overload.Class]overload.Limit{overload.Reads: {Running: 1, Waiting: 10, Wait: time.Minute}}})
	h := newHarness(t, func(o *api.Options) { o.Gate = gate })
	h.register(chain)
	task := h.createTask(1)
	path := "/v1/tasks/" + task.UUID.String()
	answered := make(chan reply, 1)
	go func() { answered <- h.send("GET", path+"?wait_ms=60000", nil) }()
	if got := want[tasker.Task](h, http.StatusOK, "GET", path+"?wait_ms=1", nil); got.State == tasker.TaskCancelled {
		t.Errorf("after the wait the task is %s", got.State)
	}
	want[tasker.Task](h, http.StatusOK, "GET", path, nil)
	if len(answered) != 0 {
		t.Fatalf("answered early: %+v", <-answered)
	}
	other := serve(t, enginetest.At(t, h.URL, postgres.Options{}))
	want[tasker.Task](other, http.StatusOK, "DELETE", path, nil)
	if got := <-answered; got.status != http.StatusOK || !strings.Contains(got.text, `"status":"cancelled"`) {
		t.Errorf("answered with %d %s", got.status, got.text)
	}
	begun := time.Now()
	want[tasker.Task](h, http.StatusOK, "GET", path+"?wait_ms=60000", nil) // it has ended before
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("a task that had ended was awaited for %v", took)
	}
	h.wantError(http.StatusNotFound, "NOT_FOUND", "not found", "GET", "/v1/tasks/"+tasker.NewID().String()+"?wait_ms=60000", nil)
	h.wantError(http.StatusBadRequest, "INVALID", "wait_ms", "GET", path+"?wait_ms=60001", nil)
}

func TestStoppingEndsWaitsForTasks(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	task := h.createTask(1)
	answered := make(chan reply, 1)
	go func() { answered <- h.send("GET", "/v1/tasks/"+task.UUID.String()+"?wait_ms=60000", nil) }()
	h.stop()
	if got := <-answered; got.status != http.StatusOK || !strings.Contains(got.text, task.UUID.String()) {
		t.Errorf("answered with %d %s", got.status, got.text)
	}
}
