package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"
)

// A poisoned engine does what it should with every report but those with a bad outcome in them.
type poisonedBackend struct {
	*fake
	cured atomic.Bool // no outcome is bad any more
	bad   []tasker.ID
	takes time.Duration // until it gives up on such a report
	err   error
}

func (p *poisonedBackend) Report(ctx context.Context, id tasker.ID, list []tasker.Outcome, claim int) (tasker.Receipt, error) {
	if p.cured.Load() || !slices.ContainsFunc(list, func(o tasker.Outcome) bool { return slices.Contains(p.bad, o.StepUUID) }) {
		return p.fake.Report(ctx, id, list, claim)
	}
	_ = p.begin(ctx, fmt.Sprintf("bad report %d", len(list)))
	select {
	case <-ctx.Done():
		return tasker.Receipt{}, ctx.Err()
	case <-time.After(p.takes):
		return tasker.Receipt{}, p.err
	}
}

// One outcome with which every report fails, slowly or at once, does not hold up
// the others: not those that were reported with it, and not those that come later.
// It is sent again, with rests, until it is answered.
func TestOneBadOutcomeDoesNotHoldUpTheOthers(t *testing.T) {
	busy := tasker.Errorf(tasker.Unavailable, "the request took longer than 30s")
	for _, tt := range []struct {
		name   string
		takes  time.Duration
		err    error
		freed  time.Duration // until those that were reported with it are through: at most five such reports, with their rests
		hourly [2]int        // reports of the bad one alone in an hour
	}{
		{"each report takes too long", 30 * time.Second, busy, 180 * time.Second, [2]int{40, 80}},
		{"each report fails inside the engine", 0, tasker.Errorf(tasker.Internal, "internal error"), 10 * time.Second, [2]int{300, 800}},
		{"each report is refused as a whole", 0, tasker.Errorf(tasker.Invalid, "the body is not valid"), 10 * time.Second, [2]int{55, 130}},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			f := newFake()
			bad := []tasker.Assignment{step("run"), step("run")}
			p := &poisonedBackend{fake: f, bad: []tasker.ID{bad[0].StepUUID, bad[1].StepUUID}, takes: tt.takes, err: tt.err}
			r := start(t, newWorker(p, 20, takes(time.Second)))
			list := []tasker.Assignment{bad[0]}
			for range 18 {
				list = append(list, step("run"))
			}
			f.add(append(list, bad[1])...)
			elapse(3 * time.Second)
			later := step("run")
			f.add(later)
			elapse(tt.freed)
			if got := f.steps(); len(got) != 19 || !slices.Contains(got, later.StepUUID) {
				t.Errorf("%d outcomes accepted, want the 18 good ones and the one that came later", len(got))
			}
			f.add(step("run"))
			elapse(2 * time.Second) // one round trip, whatever the bad ones do
			if got := len(f.steps()); got != 20 {
				t.Errorf("%d outcomes accepted: a new one waits for the bad ones", got)
			}
			before := f.count("bad report 1")
			elapse(time.Hour)
			if n := (f.count("bad report 1") - before) / 2; n < tt.hourly[0] || n > tt.hourly[1] {
				t.Errorf("each bad one was sent again %d times in an hour, want %v", n, tt.hourly)
			}
			f.mu.Lock()
			p.cured.Store(true)
			f.mu.Unlock()
			elapse(2 * time.Minute)
			if got := len(f.steps()); got != 22 {
				t.Errorf("%d outcomes accepted, want all 22", got)
			}
			for _, o := range f.accepted {
				if !o.Success {
					t.Errorf("a success became %+v", o.Failure)
				}
			}
			r.finish()
		})
	}
}

// After a long outage everything that finished in it is reported soon, as it was.
func TestAfterAnOutageNothingIsLost(t *testing.T) {
	for _, err := range []error{
		tasker.Errorf(tasker.Unavailable, "busy"), tasker.Errorf(tasker.Internal, "internal error"), errors.New("connection refused"),
		tasker.Errorf(tasker.Conflict, "what?"), tasker.Errorf(tasker.NotFound, "no such path"), tasker.Errorf(tasker.Forbidden, "not now"),
	} {
		inBubble(t, err.Error(), func(t *testing.T) {
			f := newFake()
			r := start(t, newWorker(f, 300, takes(time.Second)))
			for range 300 {
				f.add(step("run"))
			}
			synctest.Wait()
			f.setFail(func(string) error { return err })
			elapse(time.Hour)
			f.setFail(nil)
			elapse(90 * time.Second)
			if got := len(f.steps()); got != 300 || f.count("register") != 1 {
				t.Errorf("%d of 300 outcomes accepted, registered %d times", got, f.count("register"))
			}
			for _, o := range f.accepted {
				if !o.Success || string(o.Result) != `"done"` {
					t.Fatalf("accepted %+v", o)
				}
			}
			r.finish()
		})
	}
}

// A rejection is final only if the engine says that the attempt no longer counts.
func TestRejections(t *testing.T) {
	reject := func(code tasker.Code, message string, when func(tasker.Outcome) bool) func(tasker.Outcome) *tasker.Rejection {
		return func(o tasker.Outcome) *tasker.Rejection {
			if !when(o) {
				return nil
			}
			return &tasker.Rejection{StepUUID: o.StepUUID, Code: code, Message: message}
		}
	}
	success := func(o tasker.Outcome) bool { return o.Success }
	always := func(tasker.Outcome) bool { return true }
	metadata := func(o tasker.Outcome) bool { return len(o.Metadata) > 0 }
	evidence := func(o tasker.Outcome) bool { return o.Failure != nil && len(o.Failure.Context) > 0 }
	tries := 0
	thrice := func(tasker.Outcome) bool { tries++; return tries <= 3 }
	for _, tt := range []struct {
		name   string
		reject func(tasker.Outcome) *tasker.Rejection
		fails  bool   // the handler
		want   string // of what is accepted in the end: "done", the message of a failure, or "" for nothing
		slots  int    // that are free in the end
	}{
		{"the lease is lost", reject(tasker.StaleLease, "lost", always), false, "", 1},
		{"no such step", reject(tasker.NotFound, "no step", always), false, "", 1},
		{"the result cannot be stored", reject(tasker.Invalid, "result: nested more than 64 levels deep", success), false, "the engine rejected the result: result: nested more than 64 levels deep", 1},
		{"the result is too large", reject(tasker.TooLarge, "result[3]: too large", success), false, "the engine rejected the result: result[3]: too large", 1},
		{"the same, from a server", reject(tasker.Invalid, "results[0]: result: x", success), false, "the engine rejected the result: results[0]: result: x", 1},
		{"the server has failed the attempt itself", reject(tasker.Invalid, "result: x; the attempt was failed with this reason", always), false, "", 1},
		{"the metadata cannot be stored", reject(tasker.Invalid, "metadata: x", metadata), false, `"done"`, 1},
		{"a field of the metadata's kind is not known", reject(tasker.Invalid, `results[0]: json: unknown field "metadata"`, metadata), false, `"done"`, 1},
		{"a field is not known", reject(tasker.Invalid, `results[0]: json: unknown field "novel"`, always), false, "", 0},
		{"a field is not known by some servers", reject(tasker.Invalid, `results[0].novel: is not known here`, thrice), false, `"done"`, 1},
		{"the evidence cannot be stored", reject(tasker.Invalid, "error.context: x", evidence), true, "broken", 1},
		{"not now", reject(tasker.Unavailable, "busy", thrice), false, `"done"`, 1},
		{"for no reason that anybody knows", reject(tasker.Internal, "internal error", thrice), false, `"done"`, 1},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			tries = 0
			f := newFake()
			f.reject = tt.reject
			first := true
			w := newWorker(f, 1, func(_ context.Context, c *worker.Call) (json.RawMessage, error) {
				c.Metadata["ms"] = 12
				if tt.fails && first {
					return nil, &worker.Error{Err: errors.New("broken"), Context: map[string]int{"ms": 12}}
				}
				return json.RawMessage(`"done"`), nil
			})
			r := start(t, w)
			old := step("run")
			f.add(old)
			elapse(10 * time.Minute)
			got := ""
			if len(f.accepted) == 1 {
				got = string(f.accepted[0].Result)
				if x := f.accepted[0].Failure; x != nil {
					got = x.Message
					if restated := !tt.fails; restated == x.Retryable || restated != (x.Type == worker.InvalidResult) {
						t.Errorf("failure %+v", x)
					}
				}
			}
			if got != tt.want || len(f.accepted) > 1 {
				t.Errorf("accepted %q, want %q", got, tt.want)
			}
			f.mu.Lock()
			f.reject = func(o tasker.Outcome) *tasker.Rejection {
				if o.StepUUID != old.StepUUID { // which may be sent again at any moment
					return nil
				}
				return tt.reject(o)
			}
			f.accepted, first = nil, false
			f.mu.Unlock()
			f.add(step("run"))
			elapse(time.Second)
			if free := len(f.steps()); free != tt.slots {
				t.Errorf("%d slots are free, want %d", free, tt.slots)
			}
			f.mu.Lock()
			f.reject = nil
			f.mu.Unlock()
			r.finish()
		})
	}
}

// An answer that does not mention an outcome is none.
func TestAnOutcomeInNeitherListIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		mute := &muteBackend{fake: f, for_: 3}
		w := worker.New(mute, worker.Options{Name: "test", Namespaces: []string{"n"}})
		w.HandleRaw("run", takes(0))
		r := start(t, w)
		f.add(step("run"), step("run"))
		elapse(time.Minute)
		if len(f.accepted) != 2 || mute.for_ != 0 {
			t.Errorf("accepted %d, the engine was mute %d times too few", len(f.accepted), mute.for_)
		}
		r.finish()
	})
}

type muteBackend struct {
	*fake
	for_ int
}

func (m *muteBackend) Report(ctx context.Context, id tasker.ID, list []tasker.Outcome, claim int) (tasker.Receipt, error) {
	if m.for_ > 0 {
		m.for_--
		return tasker.Receipt{}, nil
	}
	return m.fake.Report(ctx, id, list, claim)
}

// The slot of an outcome that is not answered is free again when its lease is lost
// and no report of it was answered for a minute since.
func TestAnOutcomeWhoseLeaseIsLostIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		bad, later := step("run"), step("run")
		p := &poisonedBackend{fake: f, bad: []tasker.ID{bad.StepUUID}, takes: time.Second, err: errors.New("EOF")}
		var log lockedBuffer
		w := worker.New(p, worker.Options{Namespaces: []string{"n"}, Concurrency: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
		w.HandleRaw("run", takes(0))
		r := start(t, w)
		f.add(bad, later)
		elapse(time.Hour)
		if len(f.steps()) != 0 {
			t.Error("a second step began while the outcome of the first holds the slot")
		}
		f.mu.Lock()
		f.lost[bad.StepUUID] = true
		f.mu.Unlock()
		elapse(50 * time.Second)
		if strings.Contains(log.String(), "dropped an outcome") {
			t.Error("the outcome was given up at once: the engine may have taken it")
		}
		elapse(time.Minute)
		if got := f.steps(); len(got) != 1 || got[0] != later.StepUUID {
			t.Errorf("accepted %v, want the later step in the slot of the lost one", got)
		}
		if !strings.Contains(log.String(), "dropped an outcome") {
			t.Error("the log does not say that an outcome was given up")
		}
		r.finish()
	})
}

// A report that failed is sent again without asking for work: whatever was handed
// out with it is lost with its answer.
func TestAReportThatFailedAsksForNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		asking := &askingBackend{fake: f}
		r := start(t, newWorker(asking, 2, takes(time.Second)))
		f.add(step("run"))
		synctest.Wait()
		f.setFail(func(call string) error {
			if strings.HasPrefix(call, "report") {
				return tasker.Errorf(tasker.TooLarge, "the answer has more than 67108864 bytes")
			}
			return nil
		})
		elapse(30 * time.Second)
		asking.asked.Lock()
		if len(asking.slots) < 3 || asking.slots[0] == 0 || slices.Max(asking.slots[1:]) != 0 {
			t.Errorf("reports asked for %v steps, want some with the first, none with the others", asking.slots)
		}
		asking.asked.Unlock()
		f.setFail(nil)
		elapse(90 * time.Second)
		if len(f.steps()) != 1 {
			t.Error("the outcome was not accepted")
		}
		r.finish()
	})
}

type askingBackend struct {
	*fake
	asked sync.Mutex
	slots []int
}

func (a *askingBackend) Report(ctx context.Context, id tasker.ID, list []tasker.Outcome, claim int) (tasker.Receipt, error) {
	a.asked.Lock()
	a.slots = append(a.slots, claim)
	a.asked.Unlock()
	return a.fake.Report(ctx, id, list, claim)
}

// A report of one outcome that is too large by itself is final: the outcome is reduced to what fits.
func TestAnOutcomeThatIsTooLargeBecomesAFailure(t *testing.T) {
	for name, tt := range map[string]struct {
		handler worker.RawHandler
		message string
	}{
		"a success": {takes(0), "the engine rejected the report of the result: the body is too large"},
		"a failure with evidence": {func(context.Context, *worker.Call) (json.RawMessage, error) {
			return nil, &worker.Error{Err: errors.New("declined"), Context: "evidence"}
		}, "declined"},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFake()
			p := &smallBackend{fake: f}
			w := worker.New(p, worker.Options{Namespaces: []string{"n"}})
			w.HandleRaw("run", tt.handler)
			r := start(t, w)
			f.add(step("run"), step("run"))
			elapse(10 * time.Second)
			if len(f.accepted) != 2 {
				t.Fatalf("accepted %+v, want two failures", f.accepted)
			}
			for _, o := range f.accepted {
				if o.Success || o.Failure.Message != tt.message || o.Failure.Context != nil {
					t.Errorf("accepted %+v %+v, want the failure %q", o, o.Failure, tt.message)
				}
			}
			r.finish()
		})
	}
}

// A smallBackend accepts only failures without context.
type smallBackend struct{ *fake }

func (n *smallBackend) Report(ctx context.Context, id tasker.ID, list []tasker.Outcome, claim int) (tasker.Receipt, error) {
	for _, o := range list {
		if o.Success || o.Failure.Context != nil {
			return tasker.Receipt{}, tasker.Errorf(tasker.TooLarge, "the body is too large")
		}
	}
	return n.fake.Report(ctx, id, list, claim)
}

// An outcome is not sent again before the end of Retry-After, not even in another batch.
func TestRetryAfterOfAReportIsRespected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		r := start(t, newWorker(f, 4, takes(0)))
		synctest.Wait()
		f.setFail(func(call string) error {
			if strings.HasPrefix(call, "report") {
				return &tasker.Error{Code: tasker.Unavailable, Message: "busy", RetryAfter: 5 * time.Second}
			}
			return nil
		})
		f.add(step("run"), step("run"))
		elapse(4900 * time.Millisecond)
		if n := f.count("report 1") + f.count("report 2"); n == 0 || n > 2 { // together, or each alone
			t.Errorf("two outcomes were sent %d times before the end of Retry-After", n)
		}
		f.setFail(nil)
		elapse(10 * time.Second)
		if len(f.steps()) != 2 {
			t.Errorf("accepted %v, want both outcomes", f.steps())
		}
		r.finish()
	})
}

// What an engine asks for is waited for, within reason.
func TestRetryAfterIsRespected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		r := start(t, newWorker(f, 1, takes(0)))
		synctest.Wait()
		f.setFail(func(string) error {
			return &tasker.Error{Code: tasker.Unavailable, Message: "busy", RetryAfter: 40 * time.Second}
		})
		elapse(pollWait)
		f.add(step("run")) // nobody asks
		before := f.count("claim")
		elapse(10 * time.Minute)
		if n := f.count("claim") - before; n < 14 || n > 16 {
			t.Errorf("%d claims in 10 minutes, want one every 40 seconds", n)
		}
		if n := f.count("heartbeat"); n < 100 {
			t.Errorf("%d heartbeats: a long rest would cost the leases", n)
		}
		r.finish()
	})
}

const pollWait = 20 * time.Second
