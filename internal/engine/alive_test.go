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
	"tasker.example/tasker/internal/postgres"
)

// heartbeatBuffer returns an engine to which each claim is a sign of life that it stores, and the
// pass that stores them.
func heartbeatBuffer(t *testing.T, db *postgres.DB) (*engine.Engine, func()) {
	t.Helper()
	e := newEngine(db, engine.Options{HeartbeatInterval: time.Nanosecond})
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

// Claims of any number of workers keep them alive with one statement.
func TestClaimsKeepWorkersAliveTogether(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	seen := &statements{}
	h := withWorker(enginetest.At(t, d.URL, postgres.Options{Tracer: seen}))
	e, store := heartbeatBuffer(t, h.DB)
	store()
	workers := []tasker.ID{h.worker}
	for range 20 {
		workers = append(workers, h.RegisterWorker("run"))
	}
	claims := func() (stored int) {
		seen.take()
		for _, w := range workers {
			_, err := e.Claim(t.Context(), w, 1, 0)
			h.Must(err)
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
		h.Exec(`UPDATE tasker.workers SET last_heartbeat_at = now() - interval '1 hour'`)
		begun := time.Now()
		n = claims()
		took = time.Since(begun)
	}
	if n != 1 {
		t.Errorf("%d statements for the signs of life of %d workers, in %s", n, len(workers), took)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.workers WHERE last_heartbeat_at > now() - interval '5 minutes'`); n != len(workers) {
		t.Errorf("%d of %d workers are alive", n, len(workers))
	}
}

// Where nothing stores signs of life, a claim does: in a process whose loops have ended,
// or hang.
func TestAClaimStoresThatItsWorkerLivesWhenNothingElseDoes(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	e, _ := heartbeatBuffer(t, h.DB)
	h.Exec(`UPDATE tasker.workers SET last_heartbeat_at = now() - interval '1 hour'`)
	_, err := e.Claim(t.Context(), h.worker, 1, 0)
	h.Must(err)
	if n := h.Count(`SELECT count(*) FROM tasker.workers WHERE last_heartbeat_at > now() - interval '5 minutes'`); n != 1 {
		t.Error("the worker counts as silent")
	}

	e, store := heartbeatBuffer(t, h.DB)
	store() // and never again
	h.until("a claim does it by itself", func() bool {
		h.Exec(`UPDATE tasker.workers SET last_heartbeat_at = now() - interval '1 hour'`)
		_, err := e.Claim(t.Context(), h.worker, 1, 0)
		h.Must(err)
		return h.Count(`SELECT count(*) FROM tasker.workers WHERE last_heartbeat_at > now() - interval '5 minutes'`) == 1
	})
}

// A sign of life that could not be stored is stored with the next claim.
func TestASignOfLifeIsStoredAfterAnOutage(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	e := newEngine(h.DB, engine.Options{Lease: 3 * time.Hour, HeartbeatInterval: time.Hour}) // no second sign by itself
	l := loopOf(t, e.Loops(), "worker signs of life")
	_, err := l.Pass(t.Context())
	h.Must(err)
	_, err = e.Claim(t.Context(), h.worker, 1, 0)
	h.Must(err)
	h.Exec(`UPDATE tasker.workers SET last_heartbeat_at = now() - interval '1 hour'`)
	away, cancel := context.WithCancel(t.Context())
	cancel()
	h.until("the sign cannot be stored", func() bool {
		_, err := l.Pass(away)
		return err != nil
	})
	h.until("it is stored", func() bool {
		_, err := e.Claim(t.Context(), h.worker, 1, 0)
		h.Must(err)
		_, err = l.Pass(t.Context())
		h.Must(err)
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
	h.until("it listens", func() bool {
		return looks.Status().Passes > 0 &&
			h.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN "tasker_due"%'`) > 0
	})
}

// A claim that waits is answered when its worker has to drain, or is not registered any
// more, whichever server was told of that.
func TestAWaitingClaimIsAnsweredWhenItsWorkerEnds(t *testing.T) {
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
			t.Parallel()
			h := newHarness(t)
			e := newEngine(h.DB, engine.Options{HeartbeatInterval: time.Nanosecond})
			loops := e.Loops()
			h.listens(e, loopOf(t, loops, "due work")) // else a claim looks each second by itself
			l := loopOf(t, loops, "worker signs of life")
			store := func() {
				_, err := l.Pass(t.Context())
				h.Must(err)
			}
			store()
			_, err := e.Claim(t.Context(), h.worker, 1, 0) // the engine knows it now
			h.Must(err)
			store()
			other := e
			if tt.elsewhere {
				other = newEngine(h.DB, engine.Options{})
				h.Must(tt.end(other, t.Context(), h.worker))
			}
			claimed := make(chan error, 1)
			begun := time.Now()
			go func() {
				_, err := e.Claim(t.Context(), h.worker, 1, time.Minute)
				claimed <- err
			}()
			for {
				select {
				case err = <-claimed:
				default:
					if !tt.elsewhere {
						h.Must(tt.end(other, t.Context(), h.worker))
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
