package engine_test

import (
	"context"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
)

// standing is a worker as the list has it.
func (h *harness) standing(id tasker.ID) tasker.Worker {
	h.Helper()
	w, err := h.DB.WorkerWithHealth(h.Context(), id)
	h.Must(err)
	return w
}

func (h *harness) drainWorker(id tasker.ID) {
	h.Helper()
	h.Must(h.Engine.DrainWorker(h.Context(), id))
}

func TestDrainingWorkerGetsNoNewWork(t *testing.T) {
	h := newHarness(t)
	h.Template("chain", enginetest.Step("one"), enginetest.Step("two", "one"))
	first := h.Create("chain")
	held := h.ClaimOne("one")
	h.drainWorker(h.Worker)
	w := h.standing(h.Worker)
	check(t, w.Health == tasker.WorkerDraining && w.DrainingSince != nil && w.InFlight == 1, "worker %+v", w)

	// What it holds it may keep, and report; nothing comes with the answer.
	beat, err := h.Engine.Heartbeat(t.Context(), h.Worker, []tasker.Lease{held.Lease()})
	h.Must(err)
	check(t, beat.Drain && len(beat.Extended) == 1, "beat %+v", beat)
	h.Create("chain")
	r, err := h.Engine.Report(t.Context(), h.Worker, []tasker.Outcome{success(held, `1`)}, 5)
	h.Must(err)
	check(t, len(r.Accepted) == 1 && len(r.Next) == 0, "receipt %+v", r)
	r, err = h.Engine.Report(t.Context(), h.Worker, nil, 5)
	h.Must(err)
	check(t, len(r.Next) == 0, "receipt %+v", r)

	// A claim waits, as if there were nothing, in this process and in others: in one
	// that has never heard of the worker, and in one that knew it before.
	stranger := newEngine(h.DB, engine.Options{})
	for name, e := range map[string]*engine.Engine{"here": h.Engine, "a stranger": stranger} {
		asked := time.Now()
		list, err := e.Claim(t.Context(), h.Worker, 5, 300*time.Millisecond)
		h.Must(err)
		waited := time.Since(asked)
		check(t, len(list) == 0 && waited >= 300*time.Millisecond, "%s: claimed %+v after %v", name, list, waited)
	}
	other := h.RegisterWorker("run")
	if list, err := stranger.Claim(t.Context(), other, 1, 0); err != nil || len(list) != 1 {
		t.Fatalf("another worker claimed %+v, %v", list, err)
	}
	h.drainWorker(other)
	if list, err := stranger.Claim(t.Context(), other, 5, 0); err != nil || len(list) != 0 {
		t.Errorf("a process that knew the worker gave it %+v, %v", list, err)
	}
	if beat, err := stranger.Heartbeat(t.Context(), other, nil); err != nil || !beat.Drain {
		t.Errorf("beat %+v, %v", beat, err)
	}

	third := h.RegisterWorker("run")
	list := h.ClaimAs(third, 5)
	check(t, len(list) == 1 && list[0].TaskUUID == first && list[0].Name == "two",
		"a worker that does not drain claimed %+v", list)
}

func TestWaitingClaimOfADrainingWorkerGetsNothing(t *testing.T) {
	h := newSingle(t)
	ctx, hangUp := context.WithCancel(t.Context())
	type answer struct {
		list []tasker.Assignment
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		list, err := newEngine(h.DB, engine.Options{}).Claim(ctx, h.Worker, 5, time.Minute)
		got <- answer{list, err}
	}()
	h.drainWorker(h.Worker)
	h.Create("single")
	other := h.RegisterWorker("run")
	list, err := h.Engine.Claim(t.Context(), other, 1, 30*time.Second)
	h.Must(err)
	hangUp()
	if a := <-got; len(list) != 1 || len(a.list) != 0 {
		t.Errorf("the other worker got %+v, the draining one %+v, %v", list, a.list, a.err)
	}
}

func TestOnlyRegisteredWorkersCanBeDrained(t *testing.T) {
	h := newHarness(t)
	h.WantCode(h.Engine.DrainWorker(t.Context(), tasker.NewID()), tasker.NotFound, "not registered")
	h.drainWorker(h.Worker)
	since := h.standing(h.Worker).DrainingSince
	h.drainWorker(h.Worker)
	if again := h.standing(h.Worker).DrainingSince; since == nil || again == nil || !again.Equal(*since) {
		t.Errorf("draining since %v, and told again since %v", since, again)
	}
	h.Must(h.Engine.LeaveWorker(t.Context(), h.Worker))
	h.WantCode(h.Engine.DrainWorker(t.Context(), h.Worker), tasker.NotFound, "not registered")
	w := h.standing(h.Worker)
	check(t, w.Health == tasker.WorkerGone, "a worker that has left is %s", w.Health)
	h.WantCode(errOf(h.DB.WorkerWithHealth(t.Context(), tasker.NewID())), tasker.NotFound)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Engine.DrainWorker(ctx, h.Worker); err == nil || tasker.CodeOf(err) == tasker.NotFound {
		t.Errorf("no database to ask: %v", err)
	}
}

func TestSilentDrainingWorkerIsStaleOrGone(t *testing.T) {
	h := newHarness(t)
	h.drainWorker(h.Worker)
	h.Exec(`UPDATE tasker.workers SET lease = '5 minutes'`)
	for _, tt := range []struct {
		silent string
		want   tasker.WorkerHealth
	}{{"0", tasker.WorkerDraining}, {"25 s", tasker.WorkerDraining}, {"1 minute", tasker.WorkerStale}, {"6 minutes", tasker.WorkerGone}} {
		h.Exec(`UPDATE tasker.workers SET last_heartbeat_at = now() - $1::text::interval`, tt.silent)
		w := h.standing(h.Worker)
		check(t, w.Health == tt.want, "silent for %s it is %s, want %s", tt.silent, w.Health, tt.want)
		list, _, err := h.DB.Workers(t.Context(), 10, 0)
		h.Must(err)
		check(t, len(list) == 1 && list[0].Health == tt.want, "silent for %s the list says %+v", tt.silent, list)
	}
}
