package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
)

// awaited starts waiting for tasks and returns a channel of those whose wait ended without an error.
func (h *harness) awaited(e *engine.Engine, tasks ...tasker.ID) <-chan tasker.ID {
	h.Helper()
	ended := make(chan tasker.ID, len(tasks))
	before := e.TaskWaits()
	for _, task := range tasks {
		go func() {
			if err := e.AwaitTask(h.Context(), task); err == nil {
				ended <- task
			} else if h.Context().Err() == nil {
				h.Errorf("await task: %v", err)
			}
		}()
	}
	h.Eventually("the callers wait", func() bool { return e.TaskWaits() == before+len(tasks) })
	return ended
}

// Each way in which a task is settled ends the wait for it, also if another server does it.
func TestAwaitTask(t *testing.T) {
	h := newHarness(t)
	h.Template("one", enginetest.Once(enginetest.Step("a")))
	h.Template("more", enginetest.Once(enginetest.Step("a")), enginetest.Step("b", "a"))
	elsewhere := engine.New(enginetest.Open(t, h.URL, postgres.Options{}), engine.Options{})
	for name, waiting := range map[string]*engine.Engine{"the same server": h.Engine, "another server": elsewhere} {
		complete, running, cancelled, failed := h.Create("one"), h.Create("more"), h.Create("one"), h.Create("one")
		ended := h.awaited(waiting, complete, running, cancelled, failed)
		h.Cancel(cancelled)
		for _, a := range h.Claim() {
			if a.TaskUUID == failed {
				h.Accepted(failure(a, false))
			} else {
				h.Succeed(a)
			}
		}
		got := map[tasker.ID]bool{}
		for range 3 {
			got[<-ended] = true
		}
		if diff := cmp.Diff(map[tasker.ID]bool{complete: true, cancelled: true, failed: true}, got); diff != "" {
			t.Errorf("%s: settled (-want +got):\n%s", name, diff)
		}
		h.Complete("b")
		if task := <-ended; task != running {
			t.Errorf("%s: task %s is settled, want %s", name, task, running)
		}
		for _, task := range []tasker.ID{complete, cancelled, failed, running, tasker.NewID()} {
			h.Must(waiting.AwaitTask(t.Context(), task)) // settled before, or unknown
		}
		h.Eventually("nobody waits", func() bool { return waiting.TaskWaits() == 0 })
	}
	task := h.Create("one")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := h.Engine.AwaitTask(ctx, task); !errors.Is(err, context.DeadlineExceeded) || h.Engine.TaskWaits() != 0 {
		t.Errorf("after its time: %v, and %d callers wait", err, h.Engine.TaskWaits())
	}
}

// Queries that fail delay the callers, and do not end them.
func TestAwaitTaskDuringAnOutage(t *testing.T) {
	h, cutter := newCutHarness(t)
	h.Template("one", enginetest.Step("a"))
	task := h.Create("one")
	cutter.Cut(2, "FROM unnest($1::uuid[]) AS u (task_uuid)\nLEFT JOIN LATERAL", false)
	ended := h.awaited(h.Engine, task)
	h.Eventually("the queries fail", func() bool { return cutter.Count() == 2 })
	if len(ended) != 0 {
		t.Fatal("the wait ended with the outage")
	}
	h.Complete("a")
	<-ended
}

func TestAwaitedTasksAreBounded(t *testing.T) {
	h := newSingle(t)
	task := h.Create("single")
	ctx, cancel := context.WithCancel(t.Context())
	of := func(subject string) context.Context {
		return access.WithIdentity(ctx, access.NewIdentity(subject, nil))
	}
	for _, caller := range []string{"key:a", "key:b"} {
		before := h.Engine.TaskWaits()
		for range overload.Share(tasker.MaxTaskWaits) {
			go func() { _ = h.Engine.AwaitTask(of(caller), task) }()
		}
		h.Eventually("the callers wait", func() bool {
			return h.Engine.TaskWaits() == before+overload.Share(tasker.MaxTaskWaits)
		})
		if before == 0 {
			h.WantCode(h.Engine.AwaitTask(of(caller), task), tasker.Unavailable, "500 requests of key:a already wait")
		}
	}
	h.WantCode(h.Engine.AwaitTask(of("key:c"), task), tasker.Unavailable, "the limit of 1000 requests")
	cancel()
	h.Eventually("nobody waits", func() bool { return h.Engine.TaskWaits() == 0 })
}
