package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"
)

func TestDrain(t *testing.T) {
	stubborn := func(d time.Duration, err error) worker.RawHandler {
		return func(ctx context.Context, _ *worker.Call) (json.RawMessage, error) {
			<-ctx.Done()
			time.Sleep(d) //nolint:forbidigo // in a bubble
			return nil, err
		}
	}
	for _, tt := range []struct {
		name               string
		handler            worker.RawHandler
		accepted, released int
		took               time.Duration // of the drain, a quarter of a second of it for the claim under way
		err                string
	}{
		{"nothing runs any more", takes(0), 1, 0, 250 * time.Millisecond, ""},
		{"the handler finishes in time", takes(5 * time.Second), 1, 0, 4 * time.Second, ""},
		{"the handler obeys", takes(time.Hour), 0, 1, 20250 * time.Millisecond, ""},
		{"the handler tidies up", stubborn(3*time.Second, errors.New("half done")), 0, 1, 23250 * time.Millisecond, ""},
		{"the handler is just done", stubborn(3*time.Second, nil), 1, 0, 23250 * time.Millisecond, ""},
		{"the handler goes on", stubborn(time.Hour, nil), 0, 1, 25250 * time.Millisecond, "1 handlers did not stop"},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			f := newFake()
			r := start(t, newWorker(f, 2, tt.handler))
			f.add(step("run"))
			elapse(time.Second)
			begin := time.Now()
			err := r.stopped()
			if took := time.Since(begin); took != tt.took {
				t.Errorf("draining took %v, want %v", took, tt.took)
			}
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if len(f.accepted) != tt.accepted || len(f.released) != tt.released || f.left != 1 {
				t.Errorf("accepted %d, released %d, left %d times; want %d, %d and once",
					len(f.accepted), len(f.released), f.left, tt.accepted, tt.released)
			}
			elapse(2 * time.Hour) // the stubborn end
		})
	}
}

func TestInterruptedHandlersAreToldWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var cause error
		r := start(t, newWorker(f, 1, func(ctx context.Context, _ *worker.Call) (json.RawMessage, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil, ctx.Err()
		}))
		f.add(step("run"))
		synctest.Wait()
		if err := r.stopped(); err != nil || !errors.Is(cause, worker.ErrInterrupted) {
			t.Errorf("error %v, cause %v", err, cause)
		}
	})
}

// A step that comes with the answer to a report does not wait for a handler that runs on.
func TestWorkThatArrivesDuringTheDrainGoesBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.reportTakes = 2 * time.Second
		quick, slow, next := step("run"), step("run"), step("run")
		f.next = func(o tasker.Outcome) *tasker.Assignment {
			if o.StepUUID == quick.StepUUID {
				return &next
			}
			return nil
		}
		r := start(t, newWorker(f, 2, func(ctx context.Context, c *worker.Call) (json.RawMessage, error) {
			if c.StepUUID == slow.StepUUID {
				return takes(15*time.Second)(ctx, c)
			}
			return takes(0)(ctx, c)
		}))
		f.add(quick, slow)
		elapse(time.Second)
		r.stop()
		elapse(2 * time.Second)
		f.mu.Lock()
		released := slices.Clone(f.released)
		f.mu.Unlock()
		if len(released) != 1 || released[0] != next.Lease() {
			t.Errorf("released %v while a handler runs, want the next step", released)
		}
		if err := r.stopped(); err != nil || len(f.accepted) != 2 {
			t.Errorf("error %v, accepted %d", err, len(f.accepted))
		}
	})
}

func TestDrainGivesUpOnAMissingEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		r := start(t, newWorker(f, 3, takes(5*time.Second)))
		f.add(step("run"))
		elapse(time.Second)
		f.setFail(func(string) error { return errors.New("connection refused") })
		begin := time.Now()
		err := r.stopped()
		if took := time.Since(begin); err != nil || took > 15*time.Second {
			t.Errorf("error %v after %v, want an end about ten seconds after the handler's", err, took)
		}
	})
}

func TestADrainOutlastsAShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		r := start(t, newWorker(f, 3, takes(time.Second)))
		f.add(step("run"))
		synctest.Wait()
		f.setFail(func(string) error { return tasker.Errorf(tasker.Unavailable, "restarting") })
		time.AfterFunc(4*time.Second, func() { f.setFail(nil) })
		if err := r.stopped(); err != nil || len(f.accepted) != 1 || f.left != 1 {
			t.Errorf("error %v, accepted %d, left %d times", err, len(f.accepted), f.left)
		}
	})
}

// A heartbeat that tells the worker to drain is as good as the end of its context.
func TestHeartbeatStartsADrain(t *testing.T) {
	for _, tt := range []struct {
		name               string
		handler            worker.RawHandler
		accepted, released int
		took               time.Duration // from the heartbeat on
	}{
		{"nothing runs", takes(0), 1, 0, 250 * time.Millisecond},
		{"the handler finishes in time", takes(25 * time.Second), 1, 0, 15 * time.Second},
		{"the handler takes too long", takes(time.Hour), 0, 1, 20250 * time.Millisecond},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			f := newFake()
			var log strings.Builder
			w := worker.New(f, worker.Options{Namespaces: []string{"n"}, Concurrency: 2, Log: slog.New(slog.NewTextHandler(&log, nil))})
			w.HandleRaw("run", tt.handler)
			f.add(step("run"))
			r := start(t, w)
			elapse(time.Second)
			f.tellAllToDrain()
			elapse(9 * time.Second)
			begin := time.Now()
			time.AfterFunc(time.Second, func() { f.add(step("run")) }) // which is for others
			if err := <-r.end; err != nil {
				t.Errorf("run returned %v", err)
			}
			if took := time.Since(begin); took != tt.took {
				t.Errorf("draining took %v, want %v", took, tt.took)
			}
			elapse(2 * time.Second)
			if len(f.accepted) != tt.accepted || len(f.released) != tt.released || len(f.queue) != 1 || f.left != 1 || f.count("drain") != 0 {
				t.Errorf("accepted %d, released %d, queued %d, left %d times, told of a drain %d times; want %d, %d, 1, once, never",
					len(f.accepted), len(f.released), len(f.queue), f.left, f.count("drain"), tt.accepted, tt.released)
			}
			if said := log.String(); !strings.Contains(said, `level=INFO msg="draining at an operator's request"`) || strings.Contains(said, "level=WARN") {
				t.Errorf("the log says:\n%s", said)
			}
			r.stop()
		})
	}
}

// What an older registration was told is not for the worker that it is now.
func TestOnlyTheWorkerThatWasToldDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		r := start(t, newWorker(f, 1, takes(0)))
		elapse(time.Second)
		f.tellAllToDrain()
		f.forget() // and forgets it, before it can tell
		elapse(time.Minute)
		f.add(step("run"))
		elapse(time.Second)
		if len(f.accepted) != 1 {
			t.Errorf("accepted %d outcomes, want one of the worker that registered again", len(f.accepted))
		}
		r.finish()
	})
}

// The engine hears of a drain if it can; the drain is the same if it cannot.
func TestTheEngineIsToldOfADrain(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		hangs bool
		warns bool
	}{
		{name: "it hears"},
		{name: "it is too old to understand", err: tasker.Errorf(tasker.NotFound, "no such path")},
		{name: "it does not know the worker", err: tasker.Errorf(tasker.NotFound, "worker is not registered")},
		{name: "it cannot be reached", err: errors.New("connection refused"), warns: true},
		{name: "it refuses", err: tasker.Errorf(tasker.Forbidden, "not you"), warns: true},
		{name: "it does not answer", hangs: true},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			f := newFake()
			if tt.hangs {
				f.hang("drain")
			}
			f.fail = func(call string) error {
				if call == "drain" {
					return tt.err
				}
				return nil
			}
			var log strings.Builder
			w := worker.New(f, worker.Options{Namespaces: []string{"n"}, Log: slog.New(slog.NewTextHandler(&log, nil))})
			w.HandleRaw("run", takes(0))
			r := start(t, w)
			elapse(time.Second)
			begin := time.Now()
			r.finish()
			if took := time.Since(begin); took != 250*time.Millisecond || f.left != 1 {
				t.Errorf("the drain took %v, and the worker left %d times", took, f.left)
			}
			calls := strings.Join(f.calls, " ")
			if !strings.HasSuffix(calls, "drain leave") || f.count("drain") != 1 {
				t.Errorf("calls: %s", calls)
			}
			if said := log.String(); strings.Contains(said, "could not report the drain") != tt.warns {
				t.Errorf("the log says:\n%s", said)
			}
		})
	}
}

// An engine that does not answer anything any more delays the end of a worker only so
// long, whatever it holds; and what the worker had not begun is given back while
// handlers still run, if the engine is well but for its reports.
func TestHangingEngineDoesNotKeepTheWorker(t *testing.T) {
	for _, tt := range []struct {
		name     string
		hangs    []string
		took     time.Duration // at most: the handler, the farewell, and a goodbye
		released int
	}{
		{"everything", []string{"register", "claim", "heartbeat", "report", "release", "drain", "leave"}, 20 * time.Second, 0},
		{"reports", []string{"report"}, 18 * time.Second, 1},
		{"releases", []string{"release"}, 14 * time.Second, 0},
		{"drains", []string{"drain"}, 6 * time.Second, 1},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			f := newFake()
			r := start(t, newWorker(f, 3, takes(7*time.Second)))
			f.add(step("run"))
			elapse(time.Second)
			f.hang(tt.hangs...)
			begin := time.Now()
			time.AfterFunc(100*time.Millisecond, func() { f.add(step("run")) }) // for the claim that is under way
			r.finish()
			if took := time.Since(begin); took > tt.took {
				t.Errorf("the end took %v, want %v at most", took, tt.took)
			}
			if len(f.released) != tt.released {
				t.Errorf("released %d steps, want %d", len(f.released), tt.released)
			}
		})
	}
}
