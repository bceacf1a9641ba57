package taskertest

import (
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
)

// Limits that end a test that would run forever.
const (
	maxRounds   = 100     // consecutive passes without an attempt
	maxAttempts = 100_000 // per RunUntilIdle
	maxStops    = 100_000 // clock stops per Advance
)

// heldFor is the interval of heartbeats for hanging attempts, shorter than a lease.
const heldFor = engine.DefaultLease * 2 / 3

// settled is added to a due time so that the clock is past it.
const settled = time.Millisecond

// RunUntilIdle executes steps and due work until nothing more happens at the current time.
func (w *Workflow) RunUntilIdle() {
	w.t.Helper()
	w.heartbeat()
	attempts := 0
	for idle := 0; idle < maxRounds; idle++ {
		before := w.commits.Load()
		w.runPass()
		held := w.heldPass()
		worked := w.runAttempts() + w.answerSteps()
		if worked == 0 && !held && w.commits.Load() == before {
			return
		}
		if attempts += worked; attempts > maxAttempts {
			w.t.Fatalf("the workflow does not settle: %d attempts were made", attempts)
		}
		if worked > 0 {
			idle = 0
		}
	}
	w.t.Fatalf("the workflow does not settle: its timers found work %d times without progress", maxRounds)
}

// runPass does all due background work once.
func (w *Workflow) runPass() {
	w.t.Helper()
	ctx := w.t.Context()
	_, err := w.engine.Tick(ctx)
	w.must(err)
	_, err = w.engine.ExpireSteps(ctx)
	w.must(err)
	_, err = w.engine.ExpireUnserved(ctx)
	w.must(err)
	_, err = w.engine.Redispatch(ctx)
	w.must(err)
	_, err = w.engine.RetryDeferred(ctx)
	w.must(err)
	_, err = w.dlq.SweepAll(ctx)
	w.must(err)
}

// runAttempts executes all enqueued steps and returns the number of attempts.
func (w *Workflow) runAttempts() (attempts int) {
	w.t.Helper()
	if w.worker == (tasker.ID{}) {
		return 0
	}
	for attempts < maxAttempts {
		list, err := w.engine.Claim(w.t.Context(), w.worker, 1, 0)
		w.must(err)
		if len(list) == 0 {
			break
		}
		w.execute(list[0])
		attempts++
	}
	return attempts
}

// heartbeat extends the leases of hanging attempts.
func (w *Workflow) heartbeat() {
	w.t.Helper()
	if w.worker == (tasker.ID{}) {
		return
	}
	beat, err := w.engine.Heartbeat(w.t.Context(), w.worker, w.held)
	w.must(err)
	w.held = slices.DeleteFunc(w.held, func(l tasker.Lease) bool { return slices.Contains(beat.Lost, l.StepUUID) })
}

// Advance moves the clock forward by d. It stops at each due time and runs until idle, so that
// everything happens in order and on time.
func (w *Workflow) Advance(d time.Duration) {
	w.t.Helper()
	w.RunUntilIdle()
	end := w.Now().Add(d)
	for range maxStops {
		left := end.Sub(w.Now())
		if left <= 0 {
			return
		}
		w.forwardClock(min(left, w.findNextDue(left)))
		w.RunUntilIdle()
	}
	w.t.Fatalf("work was due %d times within %s, with %s left", maxStops, d, end.Sub(w.Now()))
}

func (w *Workflow) forwardClock(d time.Duration) {
	w.t.Helper()
	w.must(w.clock.Forward(w.t.Context(), d))
}

// findNextDue returns the time until work is due, but no more than within. It also stops at the
// heartbeats of hanging attempts, so that their leases do not expire.
func (w *Workflow) findNextDue(within time.Duration) time.Duration {
	w.t.Helper()
	next, err := w.engine.NextDue(w.t.Context(), within)
	w.must(err)
	stale, err := w.clock.NextStale(w.t.Context())
	w.must(err)
	for _, x := range []*time.Duration{next, stale} {
		if x != nil {
			within = min(within, *x+settled)
		}
	}
	if len(w.held) > 0 {
		within = min(within, heldFor)
	}
	return w.nextHeld(within)
}
