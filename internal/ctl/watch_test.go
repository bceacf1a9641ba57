package ctl

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

// A task in error is watched on while its step waits for a worker.
func TestWatchOfATaskInError(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	in := func(state tasker.TaskState, later time.Duration) tasker.Task {
		return tasker.Task{UUID: uuid.MustParse(anID), State: state, StateSince: since.Add(later)}
	}
	failed, complete := in(tasker.TaskError, 0), in(tasker.TaskComplete, time.Minute)
	why := func(f tasker.ConditionReason) tasker.Explanation {
		return tasker.Explanation{Condition: tasker.Condition{Reason: f, Message: "Step charge was taken by no worker in time."}}
	}
	operation := func(turn tasker.NextActor) tasker.Explanation {
		return tasker.Explanation{Condition: tasker.Condition{Reason: tasker.ConditionOperation, Message: "Step charge is planned in an operation.", NextActor: turn}}
	}
	for _, tt := range []struct {
		name    string
		answers []any
		code    int
		says    string
	}{
		{"a step waits for a worker", []any{failed, why(tasker.ConditionNoWorker), failed, why(tasker.ConditionNoWorker), complete}, cli.ExitOK, "task: error, Step charge was taken by no worker in time."},
		{"an operation releases a step", []any{failed, operation(tasker.NextServer), failed, operation(tasker.NextServer), complete}, cli.ExitOK, "task: error, Step charge is planned in an operation."},
		{"an operation is paused, or not started", []any{failed, operation(tasker.NextOperator), failed}, cli.ExitError, "needs an operator"},
		{"a step failed for good", []any{failed, why(tasker.ConditionFailed), failed}, cli.ExitError, "needs an operator"},
		{"it went on meanwhile", []any{failed, why(tasker.ConditionQueue), in(tasker.TaskStepsInProcess, time.Second), complete}, cli.ExitOK, "Task complete"},
		{"it went on and failed meanwhile", []any{failed, why(tasker.ConditionQueue), in(tasker.TaskError, time.Second), complete}, cli.ExitOK, "Task complete"},
		{"an older server", []any{failed, refusal("NOT_FOUND", "no such route")}, cli.ExitError, "needs an operator"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := runAt(answers(t, tt.answers...), "", "task", "watch", anID, "--interval", "10ms")
			if code != tt.code || strings.Count(stdout+stderr, tt.says) != 1 {
				t.Errorf("exit code %d, printed %q and %q", code, stdout, stderr)
			}
		})
	}
}

// A watch reads the task once for each event of its stream, and polls when the stream is lost.
func TestWatchFollowsTheStream(t *testing.T) {
	t.Parallel()
	for name, keeps := range map[string]bool{"followed": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var read, quiet, streams atomic.Int32
			second, complete := make(chan struct{}), make(chan struct{})
			task := tasker.Task{UUID: uuid.MustParse(anID), State: tasker.TaskStepsInProcess}
			mux := http.NewServeMux()
			mux.HandleFunc("GET /v1/tasks/"+anID, func(w http.ResponseWriter, _ *http.Request) {
				answer := task
				select {
				case <-complete:
					answer.State = tasker.TaskComplete
				default:
				}
				if read.Add(1) == 2 {
					close(second)
				}
				_ = json.NewEncoder(w).Encode(answer) // the client reports what it misses
			})
			mux.HandleFunc("GET /v1/tasks/"+anID+"/events", func(w http.ResponseWriter, r *http.Request) {
				if streams.Add(1) > 1 {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				event := func(kind string) {
					fmt.Fprintf(w, "id: 1\nevent: %[1]s\ndata: {\"kind\": %[1]q, \"task_uuid\": %[2]q}\n\n", kind, anID)
					w.(http.Flusher).Flush()
				}
				event("state")
				<-second
				before := read.Load()
				<-time.After(100 * time.Millisecond) // ten intervals
				quiet.Store(read.Load() - before)
				close(complete)
				if keeps {
					event("transition")
					<-r.Context().Done()
				}
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			code, stdout, stderr := runAt(server.URL, "", "task", "watch", anID, "--interval", "10ms")
			if code != cli.ExitOK || !strings.Contains(stdout, "Task complete") {
				t.Errorf("exit code %d, printed %q and %q", code, stdout, stderr)
			}
			if quiet.Load() > 2 {
				t.Errorf("the task was read %d times without an event", quiet.Load())
			}
		})
	}
}

// A server that restarts right after it has created a task is waited for.
func TestSubmitWaitsOutARestart(t *testing.T) {
	t.Parallel()
	list := []any{tasker.Task{UUID: uuid.MustParse(anID), State: tasker.TaskPending}}
	for range client.DefaultRetries + 1 {
		list = append(list, http.StatusServiceUnavailable)
	}
	list = append(list, tasker.Task{UUID: uuid.MustParse(anID), State: tasker.TaskComplete})
	code, stdout, stderr := runAt(answers(t, list...), "", "task", "submit", "--namespace", "orders", "--name", "one", "--wait", "--interval", "10ms")
	if code != cli.ExitOK || !strings.Contains(stdout, "Task complete") {
		t.Errorf("exit code %d, printed %q and %q", code, stdout, stderr)
	}
}
