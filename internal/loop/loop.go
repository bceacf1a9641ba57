package loop

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// AtOnce is what a pass returns as next when it left work undone, because its
// batch was full: the loop does not rest.
const AtOnce time.Duration = 1

// A Loop makes one pass after another, with a rest between them. Its fields are
// set before Run and not changed afterwards.
type Loop struct {
	Name string

	// Interval is the rest between two passes, give or take a tenth, so that many
	// servers started together do not ask the database together for ever.
	Interval time.Duration

	// Backoff is the rest after a pass that failed; it doubles with each failure in a row,
	// up to a few seconds. Zero means Every.
	Backoff time.Duration

	// Timeout is how long one pass may take. Zero means as long as it needs:
	// then stopping, too, may take that long.
	Timeout time.Duration

	// Wake ends a rest early; nil if nothing does. Its owner gives it room for
	// one value and drops a second: one pass sees all that has happened.
	Wake <-chan struct{}

	// Pass does the work that is due, safely repeatable and bounded. It may ask
	// to run again sooner than Every by returning when; zero asks for nothing.
	// What it asks for is ignored when it fails.
	Pass func(ctx context.Context) (next time.Duration, err error)

	Log *slog.Logger

	// Optional is a loop that nothing waits for, such as one that tidies up: that it
	// fails is told, and is no reason to send no work to this process.
	Optional bool

	// Semaphore is shared by loops that together make no more passes at once than it has
	// room for; nil for one that waits for no other.
	Semaphore chan struct{}

	begun    atomic.Pointer[time.Time]
	passing  atomic.Pointer[time.Time] // the start of the pass that runs; nil between passes
	good     atomic.Pointer[time.Time]
	failures atomic.Int64
	passes   atomic.Int64
	failed   atomic.Int64
}

// Run makes the first pass at once, then one after each rest. When ctx ends it
// returns nil, but never in the middle of a pass. It returns an error only for
// a loop that cannot run at all.
func (l *Loop) Run(ctx context.Context) error {
	if l.Interval <= 0 || l.Pass == nil || l.Log == nil {
		return fmt.Errorf("loop %q needs a positive Every, a Pass and a Log", l.Name)
	}
	now := time.Now()
	l.begun.Store(&now)
	wake := l.Wake
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(l.rest(l.turn(ctx))):
		case _, open := <-wake:
			if !open {
				wake = nil // a closed channel would wake the loop for ever
			}
		}
	}
	return nil
}

// ShareSlot has the spare ones of some loops make one pass at a time: what nothing waits
// for takes one connection, and not all that what is due by the clock may have.
func ShareSlot(loops []*Loop) {
	turns := make(chan struct{}, 1)
	for _, l := range loops {
		if l.Optional {
			l.Semaphore = turns
		}
	}
}

// Failures returns how many passes have failed since the last one that did not.
func (l *Loop) Failures() int {
	return int(l.failures.Load())
}

// A Status is how a loop is.
type Status struct {
	Name        string
	LastSuccess time.Time // when the last pass ended that did not fail; zero before the first
	Failures    int       // in a row
	Late        bool      // no pass was good for so long that something is wrong, or one does not end
	Spare       bool

	Passes, Failed int64 // since the start
}

// overrun is how much longer than its Timeout a pass may run before the loop is late: the
// end of its context takes a moment to end it.
const overrun = 2 * time.Second

// Status returns the state of the loop. It is late when its last good pass, or its start
// before the first, is longer ago than three passes with their rests may take, and
// while a pass runs longer than its Timeout.
func (l *Loop) Status() Status {
	s := Status{Name: l.Name, Failures: l.Failures(), Spare: l.Optional, Passes: l.passes.Load(), Failed: l.failed.Load()}
	since := l.begun.Load()
	if t := l.good.Load(); t != nil {
		s.LastSuccess, since = *t, t
	}
	rest := l.Interval
	if s.Failures > 0 && l.Backoff > 0 {
		rest = min(rest, max(l.Backoff, longestRest))
	}
	s.Late = since != nil && l.Timeout > 0 && time.Since(*since) > 3*(rest+l.Timeout)
	if t := l.passing.Load(); t != nil && l.Timeout > 0 && time.Since(*t) > l.Timeout+overrun {
		s.Late = true
	}
	return s
}

type limitKey struct{}

// WithLimit returns a context whose loops end a pass that is under way when limit
// ends: stopping waits for a pass, but not for ever.
func WithLimit(ctx, limit context.Context) context.Context {
	return context.WithValue(ctx, limitKey{}, limit)
}

// turn makes one pass when it is the loop's turn.
func (l *Loop) turn(ctx context.Context) (next time.Duration) {
	if l.Semaphore != nil {
		select {
		case l.Semaphore <- struct{}{}:
			defer func() { <-l.Semaphore }()
		case <-ctx.Done():
			return 0
		}
	}
	return l.pass(ctx)
}

// pass makes one pass, which ctx cannot interrupt but by its limit, and returns what it asks for.
func (l *Loop) pass(ctx context.Context) (next time.Duration) {
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	if limit, ok := ctx.Value(limitKey{}).(context.Context); ok {
		stop := context.AfterFunc(limit, end)
		defer stop()
	}
	if l.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.Timeout)
		defer cancel()
	}
	start := time.Now()
	l.passing.Store(&start)
	next, err := l.runRecovered(ctx)
	l.passing.Store(nil)
	now := time.Now()
	l.passes.Add(1)
	if err != nil {
		l.failed.Add(1)
		l.Log.ErrorContext(ctx, "pass failed", "loop", l.Name, "failures", l.failures.Add(1), "err", err)
		return 0
	}
	l.failures.Store(0)
	l.good.Store(&now)
	return next
}

// runRecovered calls Pass and makes an error of a panic.
func (l *Loop) runRecovered(ctx context.Context) (next time.Duration, err error) {
	defer Recover(&err)
	return l.Pass(ctx)
}

// Recover makes an error of a panic. It is deferred by the function that returns the error.
func Recover(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
	}
}

// longestRest bounds the rest of a loop that fails again and again, unless its
// usual rest is longer.
const longestRest = 5 * time.Second

// rest returns how long to rest when the pass asked for next. Only the usual
// rest is varied: a pass that names an instant means it. A loop that fails rests
// longer each time, so that an outage does not fill the log.
func (l *Loop) rest(next time.Duration) time.Duration {
	usual, failures := l.Interval, l.Failures()
	if failures > 0 && l.Backoff > 0 {
		usual = min(usual, l.Backoff)
	}
	for n := failures; n > 1 && usual < longestRest; n-- {
		usual = min(2*usual, longestRest)
	}
	usual = time.Duration(float64(usual) * (0.9 + 0.2*rand.Float64()))
	if next > 0 {
		return min(next, usual)
	}
	return usual
}
