package engine_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"tasker"
	"tasker/internal/engine"
	"tasker/internal/loop"
	"tasker/internal/postgres"
)

// Timers that would rest for an hour are woken for what is due, and for nothing else.
func TestTimersAreWokenForWhatIsDue(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.engine = engine.New(h.db, engine.Options{Lease: 3 * time.Second, ReturnGrace: -1, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	h.template("one", step("s"))
	ctx, stop := context.WithCancel(t.Context())
	g := loop.NewGroup(ctx)
	t.Cleanup(func() {
		stop()
		h.must(g.Wait())
	})
	passes := map[string]func() int64{}
	for _, l := range h.engine.Loops() {
		if slices.Contains([]string{"start tasks", "retry steps", "reclaim leases", "kept reports", "queue limits"}, l.Name) {
			l.Every = time.Hour
			passes[l.Name] = func() int64 { return l.Status().Passes }
		}
		g.Go(l.Name, l.Run)
	}
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !done(); loop.Sleep(t.Context(), 20*time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waited in vain until %s", what)
			}
		}
	}
	for name, n := range passes {
		until(name+" has looked", func() bool { return n() == 1 })
	}
	later := h.createWith(tasker.NewTask{Namespace: space, Name: "one", StartAt: time.Now().Add(300 * time.Millisecond)})
	until("the task has started", func() bool { return h.step(later, "s").State == tasker.StepEnqueued })
	h.exec(`UPDATE tasker.workflow_steps SET expires_at = now() + interval '300 milliseconds' WHERE state = 'enqueued'`)
	until("the step has expired", func() bool { return h.step(later, "s").State == tasker.StepError })

	again := h.create("one")
	a := h.claim()[0]
	h.accepted(failure(a, true))
	h.exec(`UPDATE tasker.workflow_steps SET next_retry_at = now() + interval '300 milliseconds' WHERE next_retry_at IS NOT NULL AND task_uuid = $1`, again)
	until("the step is tried again", func() bool { return h.step(again, "s").State == tasker.StepEnqueued })
	h.claim()
	h.exec(`UPDATE tasker.workflow_steps SET lease_expires_at = now() + interval '300 milliseconds' WHERE task_uuid = $1`, again)
	until("the lease is taken back", func() bool { return h.step(again, "s").State != tasker.StepInProgress })
	if n := passes["kept reports"](); n != 1 {
		t.Errorf("the timer of kept reports looked %d times, and nothing was due", n)
	}
	due, err := h.db.DueKinds(t.Context(), 0)
	h.must(err)
	if slices.Contains(due, postgres.FollowUpReport) {
		t.Errorf("due: %v", due)
	}
}
