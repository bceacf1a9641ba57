package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tasker"
	"tasker/worker"
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
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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

// TestWorkThatArrivesDuringTheDrainGoesBack: a report was under way, with a claim
// in it, when the worker was told to end.
func TestWorkThatArrivesDuringTheDrainGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.reportTakes = 2 * time.Second
		next := step("run")
		f.next = func(tasker.Outcome) *tasker.Assignment { return &next }
		r := start(t, newWorker(f, 1, takes(0)))
		f.add(step("run"))
		elapse(time.Second)
		if err := r.stopped(); err != nil {
			t.Error(err)
		}
		if len(f.accepted) != 1 || len(f.released) != 1 || f.released[0] != next.Lease() {
			t.Errorf("accepted %d, released %v; want the first done and the next given back", len(f.accepted), f.released)
		}
	})
}

func TestADrainDoesNotWaitForEverForAnEngineThatIsGone(t *testing.T) {
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
