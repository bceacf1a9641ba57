package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/pgtest/fixture"
	"tasker.example/tasker/internal/postgres"
)

func TestTimersWakeOnlyForDueWork(t *testing.T) {
	h := newHarness(t)
	h.Engine = newEngine(h.DB, engine.Options{Leases: engine.LeaseOptions{Duration: 20 * time.Second, ReconnectGrace: -1}, MaxTimerInterval: 300 * time.Millisecond, Queues: engine.QueueOptions{DisableAutoRecovery: true}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	h.Template("one", enginetest.Step("s"))
	ctx, stop := context.WithCancel(t.Context())
	g := loop.NewGroup(ctx)
	t.Cleanup(func() {
		stop()
		h.Must(g.Wait())
	})
	passes := map[string]func() int64{}
	for _, l := range h.Engine.Loops() {
		if slices.Contains([]string{"start tasks", "retry steps", "reclaim leases", "kept reports", "queue limits"}, l.Name) {
			l.Interval = time.Hour
			passes[l.Name] = func() int64 { return l.Status().Passes }
		}
		g.Go(l.Name, l.Run)
	}
	for name, n := range passes {
		h.Eventually(name+" has looked", func() bool { return n() == 1 })
	}
	later := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "one", StartAt: time.Now().Add(300 * time.Millisecond)})
	h.Eventually("the task has started", func() bool { return h.Step(later, "s").State == tasker.StepEnqueued })
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = now() + interval '300 milliseconds' WHERE state = 'enqueued'`)
	h.Eventually("the step has expired", func() bool { return h.Step(later, "s").State == tasker.StepError })

	again := h.Create("one")
	a := h.Claim()[0]
	h.Accepted(failure(a, true))
	h.Exec(`UPDATE tasker.workflow_steps SET next_retry_at = now() + interval '300 milliseconds' WHERE next_retry_at IS NOT NULL AND task_uuid = $1`, again)
	h.Eventually("the step is tried again", func() bool { return h.Step(again, "s").State == tasker.StepEnqueued })
	h.Claim()
	h.Exec(`UPDATE tasker.workflow_steps SET lease_expires_at = now() + interval '300 milliseconds' WHERE task_uuid = $1`, again)
	h.Eventually("the lease is taken back", func() bool { return h.Step(again, "s").State != tasker.StepInProgress })
	equal(t, "passes of the timer of deferred reports", passes["kept reports"](), 1)
}

func TestFailedTimerIsNotWoken(t *testing.T) {
	h := newHarness(t)
	h.Template("one", enginetest.Step("s"))
	h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "one", StartAt: time.Now().Add(time.Hour)})
	h.Exec(`ALTER TABLE tasker.deferred_work RENAME TO deferred_work_away`)
	fixture.StartsDue(h, h.Admin())
	ctx, stop := context.WithCancel(t.Context())
	g := loop.NewGroup(ctx)
	t.Cleanup(func() {
		stop()
		h.Must(g.Wait())
	})
	var watch, starts *loop.Loop
	for _, l := range h.Engine.Loops() {
		switch l.Name {
		case "due work":
			watch = l
		case "start tasks":
			starts, l.Interval, l.Backoff = l, time.Hour, time.Hour
		default:
			continue
		}
		g.Go(l.Name, l.Run)
	}
	h.Eventually("its first pass has failed", func() bool { return starts.Status().Failed > 0 })
	for n := range int64(4) { // each change asks for a look
		before := watch.Status().Passes
		h.Must(h.DB.InTx(t.Context(), func(*postgres.Tx) error { return nil }))
		h.Eventually(fmt.Sprintf("it was looked for what is due %d times", n), func() bool { return watch.Status().Passes > before+1 })
	}
	// Once by itself, and once more if it was woken before that had failed.
	if s := starts.Status(); s.Failed < 1 || s.Failed > 2 || s.Passes != s.Failed {
		t.Errorf("%d passes, %d of them failed, after %d looks for what is due", s.Passes, s.Failed, watch.Status().Passes)
	}
}
