package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/pgtest/fixture"
	"tasker.example/tasker/internal/postgres"
)

// heartbeatBuffer returns an engine to which each claim is a sign of life that it stores, and the
// pass that stores them.
func heartbeatBuffer(t *testing.T, db *postgres.DB) (*engine.Engine, func()) {
	t.Helper()
	e := newEngine(db, engine.Options{Leases: engine.LeaseOptions{HeartbeatInterval: time.Nanosecond}})
	l := loopOf(t, e.Loops(), "worker signs of life")
	return e, func() {
		t.Helper()
		if _, err := l.Pass(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func loopOf(t *testing.T, loops []*loop.Loop, name string) *loop.Loop {
	t.Helper()
	for _, l := range loops {
		if l.Name == name {
			return l
		}
	}
	t.Fatalf("there is no loop %q", name)
	return nil
}

func TestOneStatementStoresTheHeartbeatsOfAllClaims(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	seen := &statements{}
	h := withWorker(enginetest.At(t, d.URL, postgres.Options{Tracer: seen}))
	e, store := heartbeatBuffer(t, h.DB)
	store()
	workers := []tasker.ID{h.Worker}
	for range 20 {
		workers = append(workers, h.RegisterWorker("run"))
	}
	claims := func() (stored int) {
		seen.take()
		for _, w := range workers {
			h.Must(errOf(e.Claim(t.Context(), w, 1, 0)))
		}
		store()
		for _, sql := range seen.take() {
			if strings.Contains(sql, "SET last_heartbeat_at") {
				stored++
			}
		}
		return stored
	}
	claims() // they are known now
	// After two seconds a claim stores its sign by itself: only claims that took less say something.
	n, took := 0, time.Hour
	for tries := 0; n != 1 && took > 2*time.Second && tries < 20; tries++ {
		fixture.SilentWorkers(h, h.Admin(), time.Hour)
		begun := time.Now()
		n = claims()
		took = time.Since(begun)
	}
	check(t, n == 1, "%d statements for the signs of life of %d workers, in %s", n, len(workers), took)
	h.WantCount(len(workers), `SELECT count(*) FROM tasker.workers WHERE last_heartbeat_at > now() - interval '5 minutes'`)
}

func TestClaimStoresItsHeartbeatIfNoLoopDoes(t *testing.T) {
	h := newHarness(t)
	e, _ := heartbeatBuffer(t, h.DB)
	fixture.SilentWorkers(h, h.Admin(), time.Hour)
	h.Must(errOf(e.Claim(t.Context(), h.Worker, 1, 0)))
	h.WantCount(1, `SELECT count(*) FROM tasker.workers WHERE last_heartbeat_at > now() - interval '5 minutes'`)

	e, store := heartbeatBuffer(t, h.DB)
	store() // and never again
	h.Eventually("a claim does it by itself", func() bool {
		fixture.SilentWorkers(h, h.Admin(), time.Hour)
		h.Must(errOf(e.Claim(t.Context(), h.Worker, 1, 0)))
		return h.Count(`SELECT count(*) FROM tasker.workers WHERE last_heartbeat_at > now() - interval '5 minutes'`) == 1
	})
}

func TestHeartbeatOfAClaimIsStoredAfterAnOutage(t *testing.T) {
	h := newHarness(t)
	e := newEngine(h.DB, engine.Options{Leases: engine.LeaseOptions{Duration: 3 * time.Hour, HeartbeatInterval: time.Hour}}) // no second heartbeat during the test
	l := loopOf(t, e.Loops(), "worker signs of life")
	h.Must(errOf(l.Pass(t.Context())))
	h.Must(errOf(e.Claim(t.Context(), h.Worker, 1, 0)))
	fixture.SilentWorkers(h, h.Admin(), time.Hour)
	away, cancel := context.WithCancel(t.Context())
	cancel()
	h.Eventually("the sign cannot be stored", func() bool {
		_, err := l.Pass(away)
		return err != nil
	})
	h.Eventually("it is stored", func() bool {
		h.Must(errOf(e.Claim(t.Context(), h.Worker, 1, 0)))
		h.Must(errOf(l.Pass(t.Context())))
		return h.Count(`SELECT count(*) FROM tasker.workers WHERE last_heartbeat_at > now() - interval '5 minutes'`) == 1
	})
}

// listens has an engine listen, and look for what is due, until the test ends.
func (h *harness) listens(e *engine.Engine, looks *loop.Loop) {
	h.Helper()
	ctx, stop := context.WithCancel(h.Context())
	g := loop.NewGroup(ctx)
	g.Go("listen", e.Listen)
	g.Go("looks", looks.Run)
	h.Cleanup(func() {
		stop()
		h.Must(g.Wait())
	})
	h.Eventually("it listens", func() bool {
		return looks.Status().Passes > 0 &&
			h.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN "tasker_due"%'`) > 0
	})
}

func TestWaitingClaimReturnsWhenItsWorkerLeaves(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		elsewhere bool
		end       func(*engine.Engine, context.Context, tasker.ID) error
		code      tasker.Code
	}{
		"drained here":      {false, (*engine.Engine).DrainWorker, ""},
		"drained elsewhere": {true, (*engine.Engine).DrainWorker, ""},
		"gone":              {true, (*engine.Engine).LeaveWorker, tasker.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			e := newEngine(h.DB, engine.Options{Leases: engine.LeaseOptions{HeartbeatInterval: time.Nanosecond}})
			loops := e.Loops()
			h.listens(e, loopOf(t, loops, "due work")) // else a claim looks each second by itself
			l := loopOf(t, loops, "worker signs of life")
			store := func() {
				h.Must(errOf(l.Pass(t.Context())))
			}
			store()
			_, err := e.Claim(t.Context(), h.Worker, 1, 0) // the engine knows it now
			h.Must(err)
			store()
			other := e
			if tt.elsewhere {
				other = newEngine(h.DB, engine.Options{})
				h.Must(tt.end(other, t.Context(), h.Worker))
			}
			claimed := make(chan error, 1)
			begun := time.Now()
			go func() {
				_, err := e.Claim(t.Context(), h.Worker, 1, time.Minute)
				claimed <- err
			}()
			for {
				select {
				case err = <-claimed:
				default:
					if !tt.elsewhere {
						h.Must(tt.end(other, t.Context(), h.Worker))
					}
					store()
					loop.Sleep(t.Context(), 20*time.Millisecond)
					continue
				}
				break
			}
			if took := time.Since(begun); took > 8*time.Second || tasker.CodeOf(err) != tt.code && (err != nil || tt.code != "") {
				t.Errorf("answered after %v with %v, want code %q", took, err, tt.code)
			}
		})
	}
}
