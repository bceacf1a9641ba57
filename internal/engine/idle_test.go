package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

// statements records what the database was asked.
type statements struct {
	mu   sync.Mutex
	list []string
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, fmt.Sprint(q.SQL, q.Args))
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// take returns what was recorded, and begins anew.
func (s *statements) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	return list
}

// runs runs the loops of an engine, which listens, until the test ends or stop is called.
// By itself no timer looks.
func runs(t *testing.T, e *engine.Engine) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	g := loop.NewGroup(ctx)
	for _, l := range e.Loops() {
		if l.Name != "due work" {
			l.Interval = time.Hour
		}
		g.Go(l.Name, l.Run)
	}
	g.Go("listen", e.Listen)
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// restful is an engine that by itself looks for what is due once an hour.
func restful(db *postgres.DB) *engine.Engine {
	return newEngine(db, engine.Options{Leases: engine.LeaseOptions{Duration: 24 * time.Hour, ReconnectGrace: -1}, MaxTimerInterval: time.Hour})
}

func TestIdleEngineSendsNoStatements(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	seen := &statements{}
	h := withWorker(enginetest.At(t, d.URL, postgres.Options{Tracer: seen}))
	h.Engine = restful(h.DB)
	runs(t, h.Engine)
	ctx, stop := context.WithCancel(t.Context())
	claimed := make(chan error, 1)
	go func() {
		_, err := h.Engine.Claim(ctx, h.Worker, 10, time.Minute)
		claimed <- err
	}()
	defer func() {
		stop()
		if err := <-claimed; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	// A start makes each loop look once, which takes a while on a busy machine; then one
	// look answers for all of them. It used to ask forty times in three seconds.
	h.Eventually("an engine at rest asks nothing for 3 s", func() bool {
		seen.take()
		loop.Sleep(t.Context(), 3*time.Second)
		list := seen.take()
		if len(list) > 0 {
			t.Logf("it asks %d times: %s", len(list), strings.Join(list, "\n"))
		}
		return len(list) == 0
	})
}

func TestOtherProcessesAreNotifiedOfDueTimes(t *testing.T) {
	h := newHarness(t)
	h.Template("one", enginetest.Step("s"))
	h.Engine = restful(h.DB)
	runs(t, h.Engine)
	seen := &statements{}
	other := newEngine(enginetest.Open(t, h.URL, postgres.Options{Tracer: seen}), engine.Options{Leases: engine.LeaseOptions{ReconnectGrace: -1}})
	stop := runs(t, other)
	idle := func() bool {
		loop.Sleep(t.Context(), 300*time.Millisecond)
		return len(seen.take()) == 0
	}
	h.Eventually("the other process is at rest", idle)
	created, err := other.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "one", StartAt: time.Now().Add(2 * time.Second)}})
	h.Must(err)
	h.Eventually("it has notified others", func() bool {
		for _, sql := range seen.take() {
			if strings.Contains(sql, "tasker_due") {
				return true
			}
		}
		return false
	})
	stop()
	h.Eventually("the task has started", func() bool { return h.Step(created[0].TaskUUID, "s").State == tasker.StepEnqueued })
}

func TestLostNotificationDelaysWorkBriefly(t *testing.T) {
	h := newHarness(t)
	h.Template("one", enginetest.Step("s"))
	db := enginetest.Open(t, h.URL, postgres.Options{})
	silent := h.Engine // it neither looks nor notifies
	h.Engine = newEngine(db, engine.Options{Leases: engine.LeaseOptions{ReconnectGrace: -1}, MaxTimerInterval: 300 * time.Millisecond})
	runs(t, h.Engine)
	begun := time.Now()
	claimed := make(chan []tasker.Assignment, 1)
	go func() {
		list, err := h.Engine.Claim(t.Context(), h.Worker, 1, time.Minute)
		if err != nil {
			t.Error(err)
		}
		claimed <- list
	}()
	_, err := silent.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "one", StartAt: time.Now().Add(time.Second)}})
	h.Must(err)
	if list := <-claimed; len(list) != 1 {
		t.Errorf("claimed %d steps after %s", len(list), time.Since(begun))
	}
	go func() {
		list, err := h.Engine.Claim(t.Context(), h.Worker, 1, time.Minute)
		if err != nil {
			t.Error(err)
		}
		claimed <- list
	}()
	h.Eventually("it waits", func() bool { return len(claimed) == 0 })
	h.Must(errOf(silent.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "one"}})))
	if list := <-claimed; len(list) != 1 {
		t.Errorf("claimed %d steps after %s", len(list), time.Since(begun))
	}
}

func TestIdleTimeIsNoOutage(t *testing.T) {
	h := newHarness(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h.Engine = newEngine(h.DB, engine.Options{Now: func() time.Time { return now }})
	h.Template("one", enginetest.Step("s"))
	task := h.Create("one")
	h.ClaimOne("s")
	// The database has a clock of its own: whatever time the test takes, nothing is due.
	h.Exec(`UPDATE tasker.workflow_steps SET lease_expires_at = now() + interval '1 day'`)
	h.Exec(`UPDATE tasker.claims SET look_at = now() + interval '1 day'`)
	pass := map[string]func(context.Context) (time.Duration, error){}
	for _, l := range h.Engine.Loops() {
		pass[l.Name] = l.Pass
	}
	for range 2 * engine.DefaultLease / (9 * time.Second) {
		now = now.Add(9 * time.Second)
		h.Must(h.DB.InTx(t.Context(), func(*postgres.Tx) error { return nil })) // has it look soon
		for {
			next, err := pass["due work"](t.Context())
			h.Must(err)
			if next > 250*time.Millisecond {
				break
			}
			loop.Sleep(t.Context(), next)
		}
	}
	now = now.Add(5 * time.Second)
	h.Exec(`UPDATE tasker.workflow_steps SET lease_expires_at = now(), expires_at = NULL`)
	h.Exec(`UPDATE tasker.claims SET look_at = now()`)
	h.Must(errOf(pass["reclaim leases"](t.Context())))
	if s := h.Step(task, "s"); s.State == tasker.StepInProgress {
		t.Error("the lease that has run out is still held")
	}
	late := h.Create("one")
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = now() WHERE state = 'enqueued'`)
	h.Must(errOf(pass["queue limits"](t.Context())))
	if s := h.Step(late, "s"); s.State != tasker.StepError {
		t.Errorf("the step that no worker took in time is %s", s.State)
	}
}

func TestEventsWakeEveryProcess(t *testing.T) {
	h := newHarness(t)
	h.Template("one", enginetest.Once(enginetest.Step("s")))
	woken := make(chan struct{}, 100)
	e := newEngine(h.DB, engine.Options{Leases: engine.LeaseOptions{Duration: 24 * time.Hour, ReconnectGrace: -1}, MaxTimerInterval: time.Hour, Hooks: enginetest.Hooks{Events: func() { woken <- struct{}{} }}})
	runs(t, e)
	seen := &statements{}
	other := newEngine(enginetest.Open(t, h.URL, postgres.Options{Tracer: seen}), engine.Options{Leases: engine.LeaseOptions{ReconnectGrace: -1}})
	runs(t, other)
	h.Eventually("the other process is at rest", func() bool {
		loop.Sleep(t.Context(), 300*time.Millisecond)
		return len(seen.take()) == 0
	})
	h.Engine = other
	h.Create("one")
	h.Accepted(failure(h.ClaimOne("s"), false))
	noticed := func(what string) {
		select {
		case <-woken:
		case <-time.After(time.Minute):
			t.Error(what + " were not noticed")
		}
	}
	noticed("the events of another process")
	h.Eventually("both processes are at rest", func() bool {
		loop.Sleep(t.Context(), 300*time.Millisecond)
		return len(seen.take()) == 0
	})
	for len(woken) > 0 {
		<-woken
	}
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	n, err := h.DB.ReEmit(t.Context(), postgres.ReEmission{Sinks: []string{"webhook"}, Of: postgres.Span{From: 1, To: 100}, By: postgres.Operator{Actor: "ann"}}, 100)
	if err != nil || n == 0 {
		t.Fatalf("%d events are sent again: %v", n, err)
	}
	noticed("events that are sent again")
}
