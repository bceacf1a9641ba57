package engine

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

const (
	minPollInterval = 250 * time.Millisecond // minimum between two polls, and from a change to its poll
	maxPollInterval = 5 * time.Second        // default maximum between two polls, for lost notifications
	timerInterval   = time.Minute            // interval between passes of a timer that is not woken
	timerRetry      = time.Second            // delay after the first failed pass of a timer
	pollMargin      = 2 * time.Millisecond   // added so that the database clock has reached the due time
	claimsEvery     = time.Second            // minimum between two polls that wake waiting claims
)

// timerScheduler polls for due work. A single statement queries all timers. It wakes those with due
// work and waits until the next due time, but at most for a few seconds. A change in this process
// or a notification from another one makes it poll earlier.
//
// Timers also run rarely without being woken, and immediately if a poll fails, so they do not
// depend on the scheduler.
type timerScheduler struct {
	engine *Engine
	timers []*timerLoop
	wake   chan struct{}

	// wanted is the latest acceptable time of the next poll, in Unix nanoseconds, or 0 if none was
	// requested. Every claim and report reads it.
	wanted  atomic.Int64
	changed atomic.Bool  // this process has changed something since the last poll
	polled  atomic.Int64 // time of the last successful poll in Unix nanoseconds

	manyDead chan struct{} // wakes the loop that refreshes the queue heads

	// Only the pass uses the remaining fields.
	last, next time.Time // times of the polls
	claims     time.Time // when waiting claims were last woken
	peersAt    time.Time // when other processes were last asked to poll
	lastEvent  int64     // highest position in the event outbox
}

// timerLoop is a timer with the loop that runs it.
type timerLoop struct {
	*loop.Loop
	kind string
	wake chan struct{}

	// pace is the interval while the cause of the work exists. It is used for work without a known
	// due time and is 0 for other work.
	pace   time.Duration
	active atomic.Bool // the cause exists

	woken time.Time // when the scheduler last woke it
	next  time.Time // earliest future due time at the last poll, or zero
}

// newTimer registers a loop that the scheduler wakes when work of the given kind is due.
func (d *timerScheduler) newTimer(l *loop.Loop, kind string) *loop.Loop {
	return d.register(&timerLoop{Loop: l, kind: kind})
}

// newPacedTimer registers a loop that runs at intervals of pace while polls find the cause of its
// work.
func (d *timerScheduler) newPacedTimer(l *loop.Loop, kind string, pace time.Duration) *loop.Loop {
	t := &timerLoop{Loop: l, kind: kind, pace: pace}
	pass := l.Pass
	l.Pass = func(ctx context.Context) (time.Duration, error) {
		next, err := pass(ctx)
		if next == 0 && t.active.Load() {
			next = t.pace
		}
		return next, err
	}
	return d.register(t)
}

func (d *timerScheduler) register(t *timerLoop) *loop.Loop {
	t.wake = make(chan struct{}, 1)
	t.Wake, t.Interval, t.Backoff = t.wake, timerInterval, timerRetry
	d.timers = append(d.timers, t)
	return t.Loop
}

// maxInterval returns the maximum time between two polls. It is short enough that a normal interval
// is not mistaken for an outage.
func (d *timerScheduler) maxInterval() time.Duration {
	rest := min(d.engine.opts.MaxTimerInterval, d.engine.outages.leaseGrace.outage/2)
	if lasts := d.engine.outages.grace.lasts; lasts > 0 {
		rest = min(rest, max(lasts/2, minPollInterval))
	}
	return rest
}

// isAlive reports whether the last polls succeeded.
func (d *timerScheduler) isAlive() bool {
	return d != nil && time.Since(time.Unix(0, d.polled.Load())) < 3*d.engine.opts.MaxTimerInterval
}

// pollWithin requests a poll within the given time. It is cheap if an earlier poll is already
// scheduled.
func (d *timerScheduler) pollWithin(in time.Duration) {
	at := time.Now().Add(in).UnixNano()
	for {
		wanted := d.wanted.Load()
		if wanted != 0 && wanted <= at {
			return
		}
		if d.wanted.CompareAndSwap(wanted, at) {
			break
		}
	}
	loop.Wake(d.wake)
}

// requestPoll requests a poll after this process committed a change that may have created due work.
// A busy process polls every minPollInterval, an idle one rarely.
func (e *Engine) requestPoll() {
	d := e.timers.due.Load()
	if d == nil {
		return
	}
	if !d.changed.Load() {
		d.changed.Store(true)
	}
	d.pollWithin(minPollInterval)
}

// pass polls if a poll is due and wakes the timers with due work. It returns the time until the
// next poll.
func (d *timerScheduler) pass(ctx context.Context) (time.Duration, error) {
	now := time.Now()
	if wanted := d.wanted.Load(); wanted != 0 && time.Unix(0, wanted).Before(d.next) {
		d.next = time.Unix(0, wanted)
	}
	if soonest := d.last.Add(minPollInterval); d.next.Before(soonest) {
		d.next = soonest
	}
	if rest := d.next.Sub(now); rest > 0 {
		return rest, nil
	}
	d.wanted.Store(0) // reset before the poll, which may miss a change made during it
	changed := d.changed.Swap(false)
	d.last = now
	due, err := d.poll(ctx)
	if err != nil {
		d.next = time.Time{} // the loop repeats a failed pass after its backoff
		for _, t := range d.timers {
			t.wakeUnlessFailing()
		}
		return 0, err
	}
	rest := d.schedule(due, changed)
	d.next = now.Add(rest)
	events := due.LastEvent != d.lastEvent
	d.lastEvent = due.LastEvent
	if events {
		d.engine.opts.Hooks.EventsWritten()
	}
	switch {
	case changed && events:
		d.notifyPeers(ctx, now, 0) // one of the processes delivers the events
	case changed:
		d.notifyPeers(ctx, now, rest)
	}
	return max(time.Until(d.next), loop.AtOnce), nil
}

// poll queries the database for due work and records whether the database accepts writes.
func (d *timerScheduler) poll(ctx context.Context) (postgres.DueWork, error) {
	e := d.engine
	begun := e.now()
	due, err := e.db.DueWork(ctx, pendingReportInterval, 2*e.opts.MaxTimerInterval)
	if err != nil || due.ReadOnly {
		e.outages.leaseGrace.recordDatabaseDown()
	} else {
		e.outages.leaseGrace.hasExpired(e.now())
	}
	if err != nil {
		return due, err
	}
	if due.ManyDead {
		loop.Wake(d.manyDead)
	}
	e.outages.grace.isOver(begun)
	e.outages.grace.recordAnswer(begun)
	d.polled.Store(time.Now().UnixNano())
	return due, nil
}

// NextDue returns the time until the next work becomes due, or nil if none does within the given
// time. It is for tests that advance the clock.
func (e *Engine) NextDue(ctx context.Context, within time.Duration) (next *time.Duration, err error) {
	due, err := e.db.DueWork(ctx, pendingReportInterval, within)
	for _, k := range due.Kinds {
		if k.Next != nil && (next == nil || *k.Next < *next) {
			next = k.Next
		}
	}
	return next, err
}

// schedule wakes the timers with due work and returns the time until the next poll.
func (d *timerScheduler) schedule(due postgres.DueWork, changed bool) time.Duration {
	now := time.Now()
	rest := d.maxInterval()
	for _, k := range due.Kinds {
		if k.Kind == postgres.ExpireUnserved && k.Due && now.Sub(d.claims) >= claimsEvery {
			d.claims = now
			d.engine.waiters.notifier.wakeAll() // in case a notification was lost
		}
		for _, t := range d.timers {
			if t.kind == k.Kind {
				rest = min(rest, d.scheduleTimer(t, k, now, changed))
			}
		}
	}
	return max(rest, minPollInterval)
}

// scheduleTimer wakes a timer that has due work. It returns the time after which the timer may need
// to be woken again. Due work that cannot be done yet would be found by every poll. Therefore a
// timer whose passes find nothing is woken less and less often, until other work becomes due.
func (d *timerScheduler) scheduleTimer(t *timerLoop, k postgres.DueKind, now time.Time, changed bool) time.Duration {
	if t.pace > 0 {
		if t.active.Swap(k.Due) != k.Due && k.Due {
			t.wakeUnlessFailing()
		}
		return d.maxInterval()
	}
	became := !t.next.IsZero() && !now.Before(t.next)
	t.next = time.Time{}
	rest := d.maxInterval()
	if k.Next != nil {
		rest = min(rest, *k.Next+pollMargin)
		t.next = now.Add(*k.Next)
	}
	if !k.Due || t.Failures() > 0 {
		return rest
	}
	again := minPollInterval << min(d.engine.timers.fruitless[k.Kind].Load(), 10)
	if changed || became {
		again = minPollInterval
	}
	if again = min(again, maxPollInterval); now.Sub(t.woken) >= again-pollMargin {
		t.woken = now
		t.wakeUnlessFailing()
	}
	return min(rest, again)
}

func (t *timerLoop) wakeUnlessFailing() {
	if t.Failures() == 0 {
		loop.Wake(t.wake)
	}
}

// wakeTimer wakes all timers of a kind.
func (d *timerScheduler) wakeTimer(kind string) {
	for _, t := range d.timers {
		if t.kind == kind {
			t.wakeUnlessFailing()
		}
	}
}

// recordFound records how many rows a pass over a kind of work has found.
func (e *Engine) recordFound(kind string, rows int) {
	if n := e.timers.fruitless[kind]; rows > 0 {
		n.Store(0)
	} else {
		n.Add(1)
	}
}

// notifyPeers asks other processes to poll when work created by this process becomes due, in case
// this process has stopped by then. It does nothing if they poll earlier anyway.
func (d *timerScheduler) notifyPeers(ctx context.Context, now time.Time, rest time.Duration) {
	at := now.Add(rest)
	if rest >= d.maxInterval() || rest > 0 && d.peersAt.After(now) && !at.Before(d.peersAt) {
		return
	}
	if rest > 0 {
		d.peersAt = at
	}
	if err := d.engine.db.NotifyDue(ctx, d.engine.waiters.instance.String(), rest); err != nil {
		d.engine.log.DebugContext(ctx, "could not notify other processes of due work; they poll", "err", err)
	}
}

// onPeerDue handles a request of another process to poll.
func (e *Engine) onPeerDue(message string) {
	from, after, found := strings.Cut(message, " ")
	ms, err := strconv.ParseInt(after, 10, 32)
	if d := e.timers.due.Load(); found && err == nil && ms >= 0 && d != nil && from != e.waiters.instance.String() {
		d.pollWithin(time.Duration(ms)*time.Millisecond + pollMargin)
		if ms == 0 {
			e.opts.Hooks.EventsWritten() // polls do not find events that are to be delivered again
		}
	}
}
