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

// AtOnce is the delay that a pass returns if it left work undone, for example because its batch was
// full. The next pass starts immediately.
const AtOnce time.Duration = 1

// Loop runs one pass after another, with an interval between them. Set its fields before Run.
type Loop struct {
	Name string

	// Interval is the time between two passes. It varies by a tenth, so that servers that started
	// together do not query the database together.
	Interval time.Duration

	// Backoff is the delay after a failed pass. It doubles with each further failure, up to 5 s.
	// The default is Interval.
	Backoff time.Duration

	// Timeout limits one pass, and therefore also the time to stop. The default is no limit.
	Timeout time.Duration

	// Wake ends an interval early. It is optional. The channel has room for one value; a second one
	// can be dropped, because one pass handles all that has happened.
	Wake <-chan struct{}

	// Pass does the work that is due. It must be repeatable and bounded. It can return a positive
	// delay to run again before Interval; a failed pass cannot.
	Pass func(ctx context.Context) (next time.Duration, err error)

	Log *slog.Logger

	// Optional marks a loop that no task waits for, such as a cleanup. Its failures are reported,
	// but the process remains ready.
	Optional bool

	// Semaphore limits the concurrent passes of the loops that share it. It is optional.
	Semaphore chan struct{}

	begun    atomic.Pointer[time.Time]
	passing  atomic.Pointer[time.Time] // start of the current pass; nil between passes
	good     atomic.Pointer[time.Time]
	failures atomic.Int64
	passes   atomic.Int64
	failed   atomic.Int64
}

// Run makes passes until ctx ends, the first one at once. It returns nil when the current pass has
// ended. It returns an error only if the loop is misconfigured.
func (l *Loop) Run(ctx context.Context) error {
	if l.Interval <= 0 || l.Pass == nil || l.Log == nil {
		return fmt.Errorf("loop %q requires a positive Interval, a Pass and a Log", l.Name)
	}
	now := time.Now()
	l.begun.Store(&now)
	wake := l.Wake
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(l.delay(l.runTurn(ctx))):
		case _, open := <-wake:
			if !open {
				wake = nil // a closed channel would wake the loop constantly
			}
		}
	}
	return nil
}

// ShareSlot makes the optional loops run one pass at a time, so that they use one database
// connection and leave the others to timed work.
func ShareSlot(loops []*Loop) {
	turns := make(chan struct{}, 1)
	for _, l := range loops {
		if l.Optional {
			l.Semaphore = turns
		}
	}
}

// Failures returns the number of consecutive failed passes.
func (l *Loop) Failures() int {
	return int(l.failures.Load())
}

// Status is the state of a loop.
type Status struct {
	Name        string
	LastSuccess time.Time // end of the last successful pass; zero before the first
	Failures    int       // consecutive
	Late        bool      // no pass has succeeded for too long, or a pass does not end
	Spare       bool      // Loop.Optional

	Passes, Failed int64 // since the start
}

// overrun is the time by which a pass may exceed its Timeout before the loop is late, because it
// takes a moment to return after its context has ended.
const overrun = 2 * time.Second

// Status returns the state of the loop. The loop is late if a pass exceeds its Timeout, or if no
// pass has succeeded for three intervals plus three timeouts.
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

// WithLimit returns a context for loops that ends a running pass when limit ends. Stopping then
// waits for a pass only until limit.
func WithLimit(ctx, limit context.Context) context.Context {
	return context.WithValue(ctx, limitKey{}, limit)
}

// runTurn waits for the semaphore and makes one pass.
func (l *Loop) runTurn(ctx context.Context) (next time.Duration) {
	if l.Semaphore != nil {
		select {
		case l.Semaphore <- struct{}{}:
			defer func() { <-l.Semaphore }()
		case <-ctx.Done():
			return 0
		}
	}
	return l.runPass(ctx)
}

// runPass makes one pass and returns the delay that it requests. Only the limit and the timeout end
// it early.
func (l *Loop) runPass(ctx context.Context) (next time.Duration) {
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

func (l *Loop) runRecovered(ctx context.Context) (next time.Duration, err error) {
	defer Recover(&err)
	return l.Pass(ctx)
}

// Recover converts a panic to an error. Defer it in the function that returns the error.
func Recover(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
	}
}

// longestRest limits the delay of a loop that keeps failing, unless its interval is longer.
const longestRest = 5 * time.Second

// delay returns the delay until the next pass. The interval varies randomly, but a delay that a
// pass requests is exact. The delay grows with each failure, so that an outage does not fill the
// log.
func (l *Loop) delay(next time.Duration) time.Duration {
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
