package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"
)

func takes(d time.Duration) worker.RawHandler {
	return func(ctx context.Context, _ *worker.Call) (json.RawMessage, error) {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(d):
			return json.RawMessage(`"done"`), nil
		}
	}
}

// newWorker returns a worker with a handler "run" of the given concurrency.
func newWorker(b worker.Backend, concurrency int, h worker.RawHandler) *worker.Worker {
	w := worker.New(b, worker.Options{Name: "test", Namespaces: []string{"n"}, Concurrency: concurrency})
	w.HandleRaw("run", h)
	return w
}

func TestAChainCostsOneRoundTripPerStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		left := 4
		f.next = func(tasker.Outcome) *tasker.Assignment {
			if left == 0 {
				return nil
			}
			left--
			a := step("run")
			return &a
		}
		r := start(t, newWorker(f, 1, takes(time.Millisecond)))
		f.add(step("run"))
		elapse(time.Second)
		want := "register claim report 1 report 1 report 1 report 1 report 1 claim"
		if got := strings.Join(f.calls, " "); got != want {
			t.Errorf("calls: %s\nwant:  %s", got, want)
		}
		r.finish()
	})
}

func TestOutcomesTravelTogetherWhileAReportIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.reportTakes = time.Second
		w := newWorker(f, 20, takes(time.Millisecond))
		w.HandleRaw("slower", takes(500*time.Millisecond))
		r := start(t, w)
		f.add(step("run"))
		for range 9 {
			f.add(step("slower"))
		}
		elapse(time.Minute)
		var sizes []int
		for _, batch := range f.reports {
			sizes = append(sizes, len(batch))
		}
		if !slices.Equal(sizes, []int{1, 9}) {
			t.Errorf("reports of %v outcomes, want 1 at once, then 9 together", sizes)
		}
		r.finish()
	})
}

// Handlers that are quick beside a report come back together, although they take
// different times; one that is not holds up nobody.
func TestWhatWasHandedOutTogetherIsReportedTogether(t *testing.T) {
	for _, tt := range []struct {
		name string
		slow time.Duration
		want []int
	}{
		{"all are quick", 5 * time.Millisecond, []int{1, 10, 10, 10, 10, 9}},
		{"one is slow", 185 * time.Millisecond, []int{1, 10, 9, 9, 10, 10, 1}},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			f := newFake()
			f.reportTakes = 80 * time.Millisecond
			w := newWorker(f, 10, func(ctx context.Context, c *worker.Call) (json.RawMessage, error) {
				return takes(time.Duration(c.Attempt)*time.Millisecond)(ctx, c)
			})
			w.HandleRaw("slower", takes(tt.slow))
			r := start(t, w)
			var list []tasker.Assignment
			for i := range 50 {
				a := step("run")
				a.Attempt = 1 + i%8 + min(i, 1) // the first ends alone
				if i == 12 {
					a = step("slower")
				}
				list = append(list, a)
			}
			f.add(list...)
			elapse(time.Minute)
			var sizes []int
			for _, batch := range f.reports {
				sizes = append(sizes, len(batch))
			}
			if !slices.Equal(sizes, tt.want) {
				t.Errorf("reports of %v outcomes, want %v", sizes, tt.want)
			}
			r.finish()
		})
	}
}

func TestNeverMoreAtOnceThanAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.reportTakes = 3 * time.Millisecond
		var now, most atomic.Int64
		w := newWorker(f, 7, func(ctx context.Context, c *worker.Call) (json.RawMessage, error) {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			return takes(time.Duration(1+c.Attempt)*time.Millisecond)(ctx, c)
		})
		r := start(t, w)
		for i := range 500 {
			a := step("run")
			a.Attempt = i % 10
			f.add(a)
		}
		elapse(time.Minute)
		r.finish()
		if len(f.accepted) != 500 || most.Load() != 7 {
			t.Errorf("%d of 500 done, %d at once; want all, 7 at once", len(f.accepted), most.Load())
		}
	})
}

func TestLeasesAreKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		a := step("run")
		r := start(t, newWorker(f, 3, takes(95*time.Second)))
		f.add(a)
		elapse(2 * time.Minute)
		beats := 0
		for _, leases := range f.beats {
			if slices.Contains(leases, a.Lease()) {
				beats++
			}
		}
		if beats != 9 || len(f.beats) != 12-1 && len(f.beats) != 12 {
			t.Errorf("%d heartbeats, %d of them for the step; want one every 10 seconds", len(f.beats), beats)
		}
		if !slices.Equal(f.steps(), []tasker.ID{a.StepUUID}) {
			t.Errorf("accepted %v", f.steps())
		}
		r.finish()
	})
}

func TestALostLeaseStopsTheHandlerAndDropsTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		a, later := step("run"), step("run")
		f.lost[a.StepUUID] = true
		var cause error
		r := start(t, newWorker(f, 1, func(ctx context.Context, c *worker.Call) (json.RawMessage, error) {
			if c.StepUUID == a.StepUUID {
				<-ctx.Done()
				cause = context.Cause(ctx)
			}
			return nil, nil // success, but too late
		}))
		f.add(a, later)
		elapse(11 * time.Second)
		if !errors.Is(cause, worker.ErrLeaseLost) {
			t.Errorf("the handler's context ended with %v, want ErrLeaseLost", cause)
		}
		if !slices.Equal(f.steps(), []tasker.ID{later.StepUUID}) {
			t.Errorf("accepted %v, want only the later step, in the slot of the lost one", f.steps())
		}
		if err := r.stopped(); err != nil || len(f.released) != 0 {
			t.Errorf("error %v, released %v", err, f.released)
		}
	})
}

// TestALeaseThatMustHaveRunOutStopsTheHandler: nobody can tell us that it is
// lost, but another worker may have the step by now.
func TestALeaseThatMustHaveRunOutStopsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var began, ended time.Time
		r := start(t, newWorker(f, 1, func(ctx context.Context, _ *worker.Call) (json.RawMessage, error) {
			began = time.Now()
			<-ctx.Done()
			ended = time.Now()
			return nil, context.Cause(ctx)
		}))
		f.add(step("run"))
		synctest.Wait()
		f.setFail(func(string) error { return errors.New("connection refused") })
		elapse(time.Minute)
		if d := ended.Sub(began); d < 30*time.Second || d > 36*time.Second {
			t.Errorf("the handler was stopped after %v, want soon after 30s", d)
		}
		f.setFail(nil)
		if err := r.stopped(); err != nil || len(f.accepted) != 0 {
			t.Errorf("error %v, accepted %v", err, f.accepted)
		}
	})
}

func (f *fake) setFail(fail func(string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func TestOutcomesAreSentUntilAnswered(t *testing.T) {
	gone := tasker.Errorf(tasker.Unavailable, "cannot connect to the database: try again")
	for _, tt := range []struct {
		name          string
		before, after []error // of the first reports
	}{
		{"the engine is gone", []error{gone, gone, gone, gone}, nil},
		{"the network is gone", []error{errors.New("connection refused"), errors.New("EOF")}, nil},
		{"the answer is lost", nil, []error{errors.New("unexpected EOF"), errors.New("unexpected EOF")}},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			f := newFake()
			pop := func(list *[]error) func(string) error {
				return func(call string) error {
					if !strings.HasPrefix(call, "report") || len(*list) == 0 {
						return nil
					}
					err := (*list)[0]
					*list = (*list)[1:]
					return err
				}
			}
			f.fail, f.after = pop(&tt.before), pop(&tt.after)
			r := start(t, newWorker(f, 1, takes(0)))
			a := step("run")
			f.add(a)
			elapse(time.Minute)
			if !slices.Equal(f.steps(), []tasker.ID{a.StepUUID}) {
				t.Errorf("accepted %v, want the step once", f.steps())
			}
			for _, batch := range f.reports {
				if string(batch[0].Result) != `"done"` {
					t.Errorf("sent again as %+v", batch[0])
				}
			}
			r.finish()
		})
	}
}

// A strayBackend is in part another server, which does not know the paths of requests.
type strayBackend struct {
	*fake
	stray atomic.Bool
}

func (b *strayBackend) Report(ctx context.Context, id tasker.ID, list []tasker.Outcome, claim int) (tasker.Receipt, error) {
	if b.stray.Load() {
		return tasker.Receipt{}, noSuchPath("/v1/workers/%s/results", id)
	}
	return b.fake.Report(ctx, id, list, claim)
}

func (b *strayBackend) Heartbeat(ctx context.Context, id tasker.ID, leases []tasker.Lease) (tasker.Beat, error) {
	if b.stray.Load() {
		return tasker.Beat{}, noSuchPath("/v1/workers/%s/heartbeat", id)
	}
	return b.fake.Heartbeat(ctx, id, leases)
}

// A path that names the worker and is not known does not mean that the worker is not.
func TestAPathThatIsNotKnownDoesNotForgetTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := &strayBackend{fake: f}
		w := worker.New(b, worker.Options{Name: "test", Namespaces: []string{"n"}, Concurrency: 1})
		w.HandleRaw("run", takes(time.Millisecond))
		r := start(t, w)
		b.stray.Store(true)
		f.add(step("run"))
		elapse(25 * time.Second)
		b.stray.Store(false)
		elapse(15 * time.Second)
		if n := f.count("register"); n != 1 || len(f.steps()) != 1 {
			t.Errorf("registered %d times, %d outcomes accepted, want one of each", n, len(f.steps()))
		}
		r.finish()
	})
}

func TestRegistering(t *testing.T) {
	inBubble(t, "waits for the engine", func(t *testing.T) {
		f := newFake()
		f.fail = func(string) error { return tasker.Errorf(tasker.Unavailable, "starting") }
		r := start(t, newWorker(f, 1, takes(0)))
		elapse(time.Minute)
		f.setFail(nil)
		f.add(step("run"))
		elapse(time.Minute)
		if len(f.accepted) != 1 {
			t.Error("the worker did not begin to work when the engine came")
		}
		r.finish()
	})
	inBubble(t, "ends when told to, without the engine", func(t *testing.T) {
		f := newFake()
		f.fail = func(string) error { return errors.New("connection refused") }
		r := start(t, newWorker(f, 1, takes(0)))
		elapse(time.Minute)
		r.finish()
	})
	inBubble(t, "fails when refused", func(t *testing.T) {
		f := newFake()
		f.fail = func(string) error { return tasker.Errorf(tasker.Invalid, "namespaces: 1 to 100 are needed") }
		err := <-start(t, newWorker(f, 1, takes(0))).end
		if tasker.CodeOf(err) != tasker.Invalid || !strings.Contains(err.Error(), "register worker test") {
			t.Errorf("got %v", err)
		}
	})
	inBubble(t, "fails when refused later", func(t *testing.T) {
		f := newFake()
		r := start(t, newWorker(f, 1, takes(0)))
		synctest.Wait()
		f.setFail(func(call string) error {
			if call == "register" {
				return tasker.Errorf(tasker.Invalid, "handlers: unknown")
			}
			return nil
		})
		f.forget()
		if err := <-r.end; tasker.CodeOf(err) != tasker.Invalid {
			t.Errorf("got %v", err)
		}
	})
	t.Run("waits for an engine that refuses for reasons that may pass, and when it was known before", func(t *testing.T) {
		for _, err := range []error{
			tasker.Errorf(tasker.Internal, "internal error"), tasker.Errorf(tasker.Conflict, "what?"), errors.New("EOF"),
		} {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.fail = func(string) error { return err }
				r := start(t, newWorker(f, 1, takes(0)))
				elapse(time.Minute)
				f.setFail(nil)
				elapse(10 * time.Second)
				f.setFail(func(call string) error {
					if call == "register" {
						return tasker.Errorf(tasker.NotFound, "no such path")
					}
					return nil
				})
				f.forget()
				elapse(time.Minute)
				f.setFail(nil)
				f.add(step("run"))
				elapse(time.Minute)
				if len(f.accepted) != 1 {
					t.Errorf("after %v the worker does not work", err)
				}
				r.finish()
			})
		}
	})
	t.Run("needs a handler", func(t *testing.T) {
		if err := worker.New(newFake(), worker.Options{}).Run(t.Context()); err == nil {
			t.Error("ran without handlers")
		}
	})
}

func TestDeadline(t *testing.T) {
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		skew    time.Duration // how far the database's clock is ahead of ours
		want    time.Duration
	}{
		{"long", time.Minute, 0, time.Minute},
		{"long, clocks an hour apart", time.Minute, time.Hour, time.Minute},
		{"long, clocks an hour apart the other way", time.Minute, -time.Hour, time.Minute},
		{"shorter than a lease", 5 * time.Second, 0, 5 * time.Second},
		{"shorter than a lease, clocks an hour apart", 5 * time.Second, -time.Hour, 30 * time.Second},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			f := newFake()
			a := step("run")
			deadline := time.Now().Add(tt.timeout + tt.skew)
			a.Deadline, a.LeaseExpiresAt = &deadline, time.Now().Add(min(30*time.Second, tt.timeout)+tt.skew)
			begin := time.Now()
			var end time.Time
			f.add(a)
			r := start(t, newWorker(f, 1, func(ctx context.Context, _ *worker.Call) (json.RawMessage, error) {
				<-ctx.Done()
				end = time.Now()
				return nil, ctx.Err()
			}))
			elapse(2 * time.Minute)
			if got := end.Sub(begin); got != tt.want {
				t.Errorf("the handler's time was up after %v, want %v", got, tt.want)
			}
			if len(f.accepted) != 1 || f.accepted[0].Failure.Type != tasker.StepTimeout {
				t.Errorf("accepted %+v, want a failure of type step_timeout", f.accepted)
			}
			r.finish()
		})
	}
}

func TestAHandlerThatEndsItsGoroutineHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		r := start(t, newWorker(f, 1, goexit))
		f.add(step("run"))
		elapse(time.Second)
		if len(f.accepted) != 1 || f.accepted[0].Failure == nil || f.accepted[0].Failure.Type != worker.Panic {
			t.Errorf("accepted %+v", f.accepted)
		}
		r.finish()
	})
}

// hasty answers every claim at once, like a server that is going down.
type hasty struct{ *fake }

func (h hasty) Claim(ctx context.Context, id tasker.ID, limit int, _ time.Duration) ([]tasker.Assignment, error) {
	return h.fake.Claim(ctx, id, limit, 0)
}

func TestClaimsArePacedIfTheEngineDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		w := worker.New(hasty{f}, worker.Options{Name: "test", Namespaces: []string{"n"}})
		w.HandleRaw("run", takes(0))
		r := start(t, w)
		elapse(10 * time.Second)
		if n := f.count("claim"); n > 101 {
			t.Errorf("%d claims in 10 seconds", n)
		}
		r.finish()
	})
}
