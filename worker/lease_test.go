package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"
)

// A lateBackend answers claims or heartbeats long after it has done what was asked.
type lateBackend struct {
	*fake
	claims, beats time.Duration
	same          bool // heartbeats do not move the end of a lease
	dumb          bool // nor mention it
	since         time.Time
}

func (l *lateBackend) Claim(ctx context.Context, id tasker.ID, limit int, wait time.Duration) ([]tasker.Assignment, error) {
	list, err := l.fake.Claim(ctx, id, limit, wait)
	for i := range list {
		list[i].LeaseExpiresAt = time.Now().Add(30 * time.Second)
	}
	if len(list) > 0 {
		l.since = time.Now() // when the lease began
		time.Sleep(l.claims) //nolint:forbidigo // in a bubble
	}
	return list, err
}

func (l *lateBackend) Heartbeat(ctx context.Context, id tasker.ID, leases []tasker.Lease) (tasker.Beat, error) {
	now := time.Now()
	time.Sleep(time.Millisecond) //nolint:forbidigo // in a bubble
	beat, err := l.fake.Heartbeat(ctx, id, leases)
	switch {
	case err != nil || len(leases) == 0:
	case l.same:
		beat.Extended[0].ExpiresAt = l.since.Add(30 * time.Second)
	case l.dumb:
		beat.Extended = []tasker.LeaseExtension{}
	default:
		l.since = now
	}
	select {
	case <-ctx.Done():
		return tasker.Beat{}, ctx.Err()
	case <-time.After(l.beats):
	}
	return beat, err
}

// A lease runs from when the engine gave it, which may be long before its answer is here. When it
// must have run out the handler is stopped: not a moment later, and not much earlier.
func TestALeaseIsCountedFromTheQuestion(t *testing.T) {
	for _, tt := range []struct {
		name string
		late lateBackend
		idle time.Duration // how long the claim waits for the step
		gone time.Duration // when the engine is gone, from the claim's answer on
		want time.Duration // the age of the lease when the handler is stopped
	}{
		{"the answer to the claim is late", lateBackend{claims: 8 * time.Second}, 0, 0, 30 * time.Second},
		{"the claim had to wait", lateBackend{}, 15 * time.Second, time.Second, 30 * time.Second},
		{"the answer to the heartbeat is late", lateBackend{beats: 9 * time.Second}, 0, 20 * time.Second, 30 * time.Second},
		{"the heartbeat passes over a step that is locked", lateBackend{same: true}, 0, 25 * time.Second, 30 * time.Second},
		{"the heartbeat does not say", lateBackend{dumb: true}, 0, 25 * time.Second, 30 * time.Second},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			e := tt.late
			e.fake = newFake()
			w := worker.New(&e, worker.Options{Name: "test", Namespaces: []string{"n"}, Concurrency: 1})
			var stopped time.Time
			w.HandleRaw("run", func(ctx context.Context, _ *worker.Call) (json.RawMessage, error) {
				<-ctx.Done()
				stopped = time.Now()
				if !errors.Is(context.Cause(ctx), worker.ErrLeaseLost) {
					t.Errorf("stopped because of %v", context.Cause(ctx))
				}
				return nil, ctx.Err()
			})
			r := start(t, w)
			elapse(tt.idle)
			e.add(step("run"))
			elapse(tt.late.claims + tt.gone)
			e.setFail(func(string) error { return errors.New("connection refused") })
			elapse(time.Minute)
			if age := stopped.Sub(e.since); age < tt.want-100*time.Millisecond || age > tt.want+100*time.Millisecond {
				t.Errorf("stopped when the lease was %v old, want %v", age, tt.want)
			}
			e.setFail(nil)
			r.finish()
		})
	}
}

// A hastyBackend wants heartbeats more often than they can be answered.
type hastyBackend struct{ *lateBackend }

func (h *hastyBackend) RegisterWorker(ctx context.Context, w tasker.WorkerSpec) (tasker.Registration, error) {
	r, err := h.fake.RegisterWorker(ctx, w)
	r.HeartbeatInterval = 20 * time.Millisecond
	return r, err
}

// A heartbeat is not given up because the next one is due: on a busy machine none would
// ever be answered, and the lease would be lost.
func TestAHeartbeatMayTakeLongerThanTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &hastyBackend{&lateBackend{fake: newFake(), beats: 500 * time.Millisecond}}
		w := worker.New(e, worker.Options{Name: "test", Namespaces: []string{"n"}, Concurrency: 1})
		var lost bool
		w.HandleRaw("run", func(ctx context.Context, _ *worker.Call) (json.RawMessage, error) {
			select {
			case <-ctx.Done():
				lost = true
			case <-time.After(2 * time.Minute):
			}
			return nil, nil
		})
		r := start(t, w)
		e.add(step("run"))
		elapse(3 * time.Minute)
		if lost {
			t.Error("the lease was lost although every heartbeat was answered")
		}
		r.finish()
	})
}

// One lease that the engine does not understand costs none of the others.
func TestOneBadLeaseDoesNotCostTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		bad := step("run")
		w := worker.New(&strictBackend{f, bad.StepUUID}, worker.Options{Name: "test", Namespaces: []string{"n"}, Concurrency: 600})
		lost := map[tasker.ID]bool{}
		w.HandleRaw("run", func(ctx context.Context, c *worker.Call) (json.RawMessage, error) {
			select {
			case <-ctx.Done():
				lost[c.StepUUID] = true
			case <-time.After(10 * time.Minute):
			}
			return nil, nil
		})
		r := start(t, w)
		f.add(bad)
		for range 599 {
			f.add(step("run"))
		}
		elapse(9 * time.Minute)
		if len(lost) != 1 || !lost[bad.StepUUID] {
			t.Errorf("%d handlers were stopped, want the one whose lease the engine does not take", len(lost))
		}
		elapse(2 * time.Minute)
		if err := r.stopped(); err != nil || len(f.accepted) != 599 {
			t.Errorf("accepted %d, %v", len(f.accepted), err)
		}
	})
}

type strictBackend struct {
	*fake
	bad tasker.ID
}

func (e *strictBackend) Heartbeat(ctx context.Context, id tasker.ID, leases []tasker.Lease) (tasker.Beat, error) {
	if slices.ContainsFunc(leases, func(l tasker.Lease) bool { return l.StepUUID == e.bad }) {
		return tasker.Beat{}, errors.Join(e.begin(ctx, "bad beat"), tasker.Errorf(tasker.Invalid, "leases[3]: lease_token is none"))
	}
	return e.fake.Heartbeat(ctx, id, leases)
}

// A claim whose answer is too large to be read asks for less, and for more again
// when that was read.
func TestAClaimAsksForLessWhenTheAnswerIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		e := &narrowBackend{fake: f, room: 5}
		r := start(t, newWorker(e, 80, takes(time.Minute)))
		for range 80 {
			f.add(step("run"))
		}
		elapse(30 * time.Second)
		if want := []int{80, 40, 20, 10, 5, 10, 5}; !slices.Equal(e.asked[:min(len(e.asked), len(want))], want) {
			t.Errorf("asked for %v, want it to begin with %v", e.asked, want)
		}
		f.mu.Lock()
		e.room = 1000
		f.mu.Unlock()
		elapse(5 * time.Minute)
		if err := r.stopped(); err != nil || len(f.accepted) != 80 {
			t.Errorf("accepted %d, %v", len(f.accepted), err)
		}
	})
}

type narrowBackend struct {
	*fake
	room  int
	asked []int
}

func (e *narrowBackend) Claim(ctx context.Context, id tasker.ID, limit int, wait time.Duration) ([]tasker.Assignment, error) {
	e.mu.Lock()
	e.asked = append(e.asked, limit)
	narrow := limit > e.room && len(e.queue) > 0
	e.mu.Unlock()
	if narrow {
		return nil, tasker.Errorf(tasker.TooLarge, "the response is larger than 67108864 bytes: request less at once")
	}
	return e.fake.Claim(ctx, id, limit, wait)
}
