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
	minPollInterval = 250 * time.Millisecond // least rest between two looks, and from a change to the look that it asks for
	maxPollInterval = 5 * time.Second        // most rest between two looks, by default: how late a lost notification makes what is due
	timerInterval   = time.Minute            // between two passes of a timer that nothing wakes
	timerRetry      = time.Second            // after the first pass of a timer that failed
	lookMargin      = 2 * time.Millisecond   // the database's clock must have reached an instant when it is asked
	claimsEvery     = time.Second            // between two times that a look wakes waiting claims
)

// A timerScheduler knows when something is due next. It asks for all timers in one statement,
// wakes those for which something is, and rests until the next instant, a few seconds at most.
// A change in this process, or a notification of another one, makes it look sooner.
//
// Timers also look by themselves, rarely, and at once when the look fails, so that none
// depends on it.
type timerScheduler struct {
	engine *Engine
	timers []*timerLoop
	wake   chan struct{}

	// wanted is when to look at the latest, in Unix nanoseconds; 0 means that nothing asks
	// for it. It is read by each claim and report.
	wanted  atomic.Int64
	changed atomic.Bool  // something has changed in this process since the last look
	looked  atomic.Int64 // when the last look succeeded, in Unix nanoseconds

	manyDead chan struct{} // wakes the loop that looks where claims begin

	// What follows is used by the pass only.
	last, next time.Time // looks
	claims     time.Time // when waiting claims were last woken
	told       time.Time // the instant that other processes were last notified of
	lastEvent  int64     // the highest position in the outbox of events
}

// A timerLoop is the loop of a timer, with the kind of its work and what wakes it.
type timerLoop struct {
	*loop.Loop
	kind string
	wake chan struct{}

	// pace is the rest between two passes while the cause of the work is there, for work
	// of which no instant is known; else 0.
	pace   time.Duration
	active atomic.Bool // its cause is there

	woken time.Time // by the watch
	next  time.Time // the first instant that was not due at the last look; zero: none
}

func newDueWatch(e *Engine) *timerScheduler {
	return &timerScheduler{engine: e, wake: make(chan struct{}, 1), manyDead: make(chan struct{}, 1)}
}

// timer returns a loop that the watch wakes when work of the kind is due.
func (d *timerScheduler) timer(l *loop.Loop, kind string) *loop.Loop {
	return d.watch(&timerLoop{Loop: l, kind: kind})
}

// paced returns a loop that makes a pass each time the pace has passed, as long as a
// look finds the cause of its work.
func (d *timerScheduler) paced(l *loop.Loop, kind string, pace time.Duration) *loop.Loop {
	t := &timerLoop{Loop: l, kind: kind, pace: pace}
	pass := l.Pass
	l.Pass = func(ctx context.Context) (time.Duration, error) {
		next, err := pass(ctx)
		if next == 0 && t.active.Load() {
			next = t.pace
		}
		return next, err
	}
	return d.watch(t)
}

func (d *timerScheduler) watch(t *timerLoop) *loop.Loop {
	t.wake = make(chan struct{}, 1)
	t.Wake, t.Interval, t.Backoff = t.wake, timerInterval, timerRetry
	d.timers = append(d.timers, t)
	return t.Loop
}

// maxInterval is the most that the watch rests. It is short enough that neither an outage nor a
// grace is mistaken for a rest.
func (d *timerScheduler) maxInterval() time.Duration {
	rest := min(d.engine.dueRest, d.engine.leaseGrace.outage/2)
	if lasts := d.engine.grace.lasts; lasts > 0 {
		rest = min(rest, max(lasts/2, minPollInterval))
	}
	return rest
}

// alive reports whether the watch looks as it should.
func (d *timerScheduler) alive() bool {
	return d != nil && time.Since(time.Unix(0, d.looked.Load())) < 3*d.engine.dueRest
}

// pollWithin has the watch look in at most so long. It costs next to nothing when it is going
// to anyway.
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

// requestPoll says that a commit of this process may have brought something that
// is due sooner than the next look. A process that works looks every minPollInterval, one that
// does nothing hardly ever.
func (e *Engine) requestPoll() {
	d := e.due.Load()
	if d == nil {
		return
	}
	if !d.changed.Load() {
		d.changed.Store(true)
	}
	d.pollWithin(minPollInterval)
}

// pass looks if it is time, wakes the timers for which something is due, and returns when
// to look again. One that fails rests as long as its failures ask for.
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
	d.wanted.Store(0) // before the look: a change during it may not be seen by it
	changed := d.changed.Swap(false)
	d.last = now
	look, err := d.poll(ctx)
	if err != nil {
		d.next = time.Time{} // a pass that fails is repeated as its loop rests
		for _, t := range d.timers {
			t.wakeUnlessFailing() // each asks by itself
		}
		return 0, err
	}
	rest := d.schedule(look, changed)
	d.next = now.Add(rest)
	events := look.LastEvent != d.lastEvent
	d.lastEvent = look.LastEvent
	if events {
		d.engine.events()
	}
	switch {
	case changed && events:
		d.notifyPeers(ctx, now, 0) // one of them sends the events
	case changed:
		d.notifyPeers(ctx, now, rest)
	}
	return max(time.Until(d.next), loop.AtOnce), nil
}

// poll asks the database, and notes that it answers and takes writes, or not.
func (d *timerScheduler) poll(ctx context.Context) (postgres.Look, error) {
	e := d.engine
	begun := e.now()
	look, err := e.db.LookForDue(ctx, pendingReportInterval, 2*e.dueRest)
	if err != nil || look.ReadOnly {
		e.leaseGrace.databaseDown()
	} else {
		e.leaseGrace.expired(e.now())
	}
	if err != nil {
		return look, err
	}
	if look.ManyDead {
		loop.Wake(d.manyDead)
	}
	e.grace.over(begun)
	e.grace.answered(begun)
	d.looked.Store(time.Now().UnixNano())
	return look, nil
}

// NextDue returns in how long something becomes due that is not due yet, within a time;
// nil: nothing does. A test that moves the clock asks for it.
func (e *Engine) NextDue(ctx context.Context, within time.Duration) (next *time.Duration, err error) {
	look, err := e.db.LookForDue(ctx, pendingReportInterval, within)
	for _, k := range look.Kinds {
		if k.Next != nil && (next == nil || *k.Next < *next) {
			next = k.Next
		}
	}
	return next, err
}

// schedule wakes the timers for which something is due, and returns for how long to rest.
func (d *timerScheduler) schedule(look postgres.Look, changed bool) time.Duration {
	now := time.Now()
	rest := d.maxInterval()
	for _, k := range look.Kinds {
		if k.Kind == postgres.ExpireUnserved && k.Due && now.Sub(d.claims) >= claimsEvery {
			d.claims = now
			d.engine.notifier.wakeAll() // a notification may be lost
		}
		for _, t := range d.timers {
			if t.kind == k.Kind {
				rest = min(rest, d.scheduleTimer(t, k, now, changed))
			}
		}
	}
	return max(rest, minPollInterval)
}

// scheduleTimer wakes a timer if it should look now, and returns in how long it may have
// to be woken. What is due and cannot be done now is due at each look: a timer that found
// nothing to do is woken less and less often for it, until something else becomes due.
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
		rest = min(rest, *k.Next+lookMargin)
		t.next = now.Add(*k.Next)
	}
	if !k.Due || t.Failures() > 0 {
		return rest
	}
	again := minPollInterval << min(d.engine.fruitless[k.Kind].Load(), 10)
	if changed || became {
		again = minPollInterval
	}
	if again = min(again, maxPollInterval); now.Sub(t.woken) >= again-lookMargin {
		t.woken = now
		t.wakeUnlessFailing()
	}
	return min(rest, again)
}

// wakeUnlessFailing wakes the loop unless it fails.
func (t *timerLoop) wakeUnlessFailing() {
	if t.Failures() > 0 {
		return
	}
	loop.Wake(t.wake)
}

// rouse wakes the timers of a kind.
func (d *timerScheduler) rouse(kind string) {
	for _, t := range d.timers {
		if t.kind == kind {
			t.wakeUnlessFailing()
		}
	}
}

// found notes how many rows a pass of a kind found.
func (e *Engine) found(kind string, rows int) {
	if n := e.fruitless[kind]; rows > 0 {
		n.Store(0)
	} else {
		n.Add(1)
	}
}

// notifyPeers has other processes look in a while, when a change here made something due before
// they look by themselves: this process may not be there any more when it is.
func (d *timerScheduler) notifyPeers(ctx context.Context, now time.Time, rest time.Duration) {
	at := now.Add(rest)
	if rest >= d.maxInterval() || rest > 0 && d.told.After(now) && !at.Before(d.told) {
		return
	}
	if rest > 0 {
		d.told = at
	}
	if err := d.engine.db.NotifyDue(ctx, d.engine.instance.String(), rest); err != nil {
		d.engine.log.DebugContext(ctx, "other processes were not notified of what is due; they look by themselves", "err", err)
	}
}

// onPeerDue looks when another process says that something is due.
func (e *Engine) onPeerDue(message string) {
	from, after, found := strings.Cut(message, " ")
	ms, err := strconv.ParseInt(after, 10, 32)
	if d := e.due.Load(); found && err == nil && ms >= 0 && d != nil && from != e.instance.String() {
		d.pollWithin(time.Duration(ms)*time.Millisecond + lookMargin)
		if ms == 0 {
			e.events() // the scan does not find events that are sent again
		}
	}
}
