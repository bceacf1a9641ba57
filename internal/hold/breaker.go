package hold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/fingerprint"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

// Breaker configures when failures with the same cause open a circuit breaker. The zero value
// disables it. All conditions apply to the attempts of one handler within Window.
type Breaker struct {
	Failures int // minimum failed attempts with the cause
	Tasks    int // minimum number of tasks among these attempts; at most [MaxBreakerTasks]
	Share    int // minimum percentage of these attempts among all that ended
	Window   time.Duration
}

func (b Breaker) isEnabled() bool { return b.Failures > 0 }

// Limits of what one server counts.
const (
	MaxBreakerTasks = 100
	maxQueues       = 1000 // number of handlers
	maxCauses       = 20   // per handler
)

// shareFrom is the number of failures with one cause from which a server shares its counts with
// other servers.
const shareFrom = 3

type queue struct{ namespace, handler string }

// counts contains the number of attempts of one handler that ended, by second.
type counts struct {
	ended  map[int64]int
	causes map[string]*cause
}

type cause struct {
	pattern string
	failed  map[int64]int
	tasks   map[tasker.ID]int64 // second of each task's last failure, for at most MaxBreakerTasks tasks
}

// counter counts the attempts that end on this server. It is safe for concurrent use.
type counter struct {
	Breaker
	now  func() time.Time
	mu   sync.Mutex
	of   map[queue]*counts
	held map[queue]bool // queues that a breaker already holds
}

func newCounter(b Breaker, now func() time.Time) *counter {
	return &counter{Breaker: b, now: now, of: map[queue]*counts{}}
}

func (c *counter) add(list []engine.Attempt) {
	if !c.isEnabled() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	second := c.now().Unix()
	for _, a := range list {
		q := queue{a.Namespace, a.Handler}
		of := c.of[q]
		if c.held[q] || of == nil && (len(c.of) >= maxQueues || a.Failure == nil && len(c.of) >= maxQueues/2) {
			continue // reserve half of the queues for failures
		}
		if of == nil {
			of = &counts{ended: map[int64]int{}, causes: map[string]*cause{}}
			c.of[q] = of
		}
		of.ended[second]++
		if a.Failure != nil {
			of.fail(*a.Failure, a.TaskUUID, second)
		}
	}
}

func (of *counts) fail(f tasker.Failure, task tasker.ID, second int64) {
	n := fingerprint.Normalize(fingerprint.Failure{Type: f.Type, Message: f.Message, Given: f.Fingerprint})
	why := of.causes[n.Key]
	if why == nil {
		if len(of.causes) >= maxCauses {
			return
		}
		why = &cause{pattern: n.Pattern, failed: map[int64]int{}, tasks: map[tasker.ID]int64{}}
		of.causes[n.Key] = why
	}
	why.failed[second]++
	if _, known := why.tasks[task]; known || len(why.tasks) < MaxBreakerTasks {
		why.tasks[task] = second
	}
}

// skipHeld sets the queues that breakers hold. It discards their counts, which start again at zero
// when the breaker closes.
func (c *counter) skipHeld(open []tasker.Hold) {
	held := map[queue]bool{}
	for _, h := range open {
		if h.Kind == tasker.BreakerHold && h.Blocks {
			held[queue{h.Namespace, h.Handler}] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = held
	for q := range held {
		delete(c.of, q)
	}
}

// takeCounts returns the counts to share and removes old ones. It includes queues for which another
// server reported failures.
func (c *counter) takeCounts(reported map[queue]bool) []postgres.BreakerCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := c.now().Add(-c.Window).Unix()
	var list []postgres.BreakerCount
	for q, of := range c.of {
		ended, before := sumSince(of.ended, since), len(list)
		for key, why := range of.causes {
			failed := why.countSince(since)
			if failed == 0 {
				delete(of.causes, key)
			}
			if failed >= shareFrom {
				list = append(list, postgres.BreakerCount{
					Namespace: q.namespace, Handler: q.handler, CauseKey: key, Cause: why.pattern, Failed: failed, Tasks: len(why.tasks), Concluded: ended,
				})
			}
		}
		if ended > 0 && len(list) == before && reported[q] {
			list = append(list, postgres.BreakerCount{Namespace: q.namespace, Handler: q.handler, Concluded: ended})
		}
		if ended == 0 && len(of.causes) == 0 {
			delete(c.of, q)
		}
	}
	return list
}

// countSince returns the number of failures since a second and removes older ones.
func (why *cause) countSince(second int64) int {
	maps.DeleteFunc(why.tasks, func(_ tasker.ID, at int64) bool { return at < second })
	return sumSince(why.failed, second)
}

// sumSince returns the total since a second and removes older entries.
func sumSince(of map[int64]int, since int64) (n int) {
	for second, k := range of {
		if second < since {
			delete(of, second)
			continue
		}
		n += k
	}
	return n
}

// shouldOpen reports whether the counts of all servers open a breaker.
func (b Breaker) shouldOpen(n postgres.BreakerCount) bool {
	return b.isEnabled() && n.Failed >= b.Failures && n.Tasks >= b.Tasks && n.Failed*100 >= n.Concluded*b.Share
}

// Concluded counts attempts that have ended on this server. It does not block.
func (s *Service) Concluded(list []engine.Attempt) { s.counter.add(list) }

// OpenBreakers shares failure counts with other servers and opens breakers.
func (s *Service) OpenBreakers(ctx context.Context) (time.Duration, error) {
	if !s.breaker.isEnabled() {
		return 0, nil
	}
	defer s.unopened.forget(s.counter.now().Add(-s.breaker.Window))
	others, err := s.db.FailingQueues(ctx, s.server, sharedCountTTL)
	if err != nil {
		return 0, err
	}
	reported := map[queue]bool{}
	for _, q := range others {
		reported[queue{q.Namespace, q.Handler}] = true
	}
	list := s.counter.takeCounts(reported)
	s.countPublishedPasses(list)
	if len(list) == 0 {
		return 0, nil
	}
	sums, err := s.db.ShareBreakerCounts(ctx, s.server, list, sharedCountTTL)
	if err != nil {
		return 0, err
	}
	var failed error
	for _, n := range sums {
		if s.sharedPasses[queue{n.Namespace, n.Handler}] <= answerPasses || !s.breaker.shouldOpen(n) {
			continue
		}
		failed = errors.Join(failed, s.openOnce(ctx, n)) // a failure must not delay other breakers
	}
	return 0, failed
}

// openOnce opens a breaker unless one is already open. If there are too many holds, it logs an
// error, and a later pass retries.
func (s *Service) openOnce(ctx context.Context, n postgres.BreakerCount) error {
	err := s.open(ctx, n)
	switch q := (queue{n.Namespace, n.Handler}); {
	case errors.Is(err, postgres.ErrTooManyHolds):
		if s.unopened.shouldLog(q, s.counter.now()) {
			s.log.ErrorContext(ctx, "cannot open a circuit breaker: too many holds are open; steps keep "+
				"failing", "namespace", n.Namespace, "handler", n.Handler,
				"failed", n.Failed, "ended", n.Concluded, "cause", n.Cause, "err", err)
		}
		return nil
	case err == nil, tasker.CodeOf(err) == tasker.Conflict:
		s.unopened.drop(q)
		return nil
	default:
		return fmt.Errorf("open a circuit breaker of handler %s in namespace %s: %w", n.Handler, n.Namespace, err)
	}
}

// CountUnopened returns the number of handlers whose breakers this server cannot open because of
// too many holds.
func (s *Service) CountUnopened() int64 { return s.unopened.count() }

// suppressedBreakers contains the handlers whose breakers could not be opened because there are too
// many holds.
type suppressedBreakers struct {
	mu sync.Mutex
	of map[queue]*failedOpening
}

// failedOpening records when the opening of a breaker was last refused and last logged.
type failedOpening struct{ at, logged time.Time }

// logUnopenedEvery is the minimum interval between log entries about the same handler.
const logUnopenedEvery = time.Minute

// shouldLog records that the opening of a breaker was refused and reports whether to log this.
func (u *suppressedBreakers) shouldLog(q queue, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.of[q]
	if r == nil {
		if u.of == nil {
			u.of = map[queue]*failedOpening{}
		}
		r = &failedOpening{}
		u.of[q] = r
	}
	r.at = now
	if now.Sub(r.logged) < logUnopenedEvery {
		return false
	}
	r.logged = now
	return true
}

func (u *suppressedBreakers) drop(q queue) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.of, q)
}

// forget removes handlers whose breakers were last refused before the given time. Their attempts no
// longer fail.
func (u *suppressedBreakers) forget(before time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.of, func(_ queue, r *failedOpening) bool { return r.at.Before(before) })
}

func (u *suppressedBreakers) count() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return int64(len(u.of))
}

// answerPasses is the number of passes during which a breaker waits for the counts of other servers
// before it opens. Every server makes a pass in this time.
const answerPasses = 2

// countPublishedPasses counts, for each queue, the consecutive passes in which this server has
// shared failures.
func (s *Service) countPublishedPasses(list []postgres.BreakerCount) {
	passes := map[queue]int{}
	for _, n := range list {
		if q := (queue{n.Namespace, n.Handler}); n.CauseKey != "" {
			passes[q] = s.sharedPasses[q] + 1
		}
	}
	s.sharedPasses = passes
}

// sharedCountTTL is the time for which shared counts are valid.
const sharedCountTTL = 5 * time.Second

// open opens a breaker: a hold on the steps of a handler that lasts until a probe succeeds.
func (s *Service) open(ctx context.Context, n postgres.BreakerCount) error {
	// This does not exceed the length of a reason, since the pattern of a cause is bounded.
	why := fmt.Sprintf("%d of %d attempts within %s failed with: %s", n.Failed, n.Concluded, s.breaker.Window, n.Cause)
	h, err := s.db.BeginHold(ctx, postgres.InsertedHold{
		NewHold: tasker.NewHold{
			HoldScope: tasker.HoldScope{Namespace: n.Namespace, Handler: n.Handler}, For: tasker.MaxHoldTime,
			Owner: tasker.SystemActor, Actor: tasker.SystemActor, Reason: why,
		},
		UUID: tasker.NewID(), Kind: tasker.BreakerHold, Cause: n.Cause, CauseKey: n.CauseKey, NextProbe: probeInterval(0, 0),
	})
	if err != nil {
		return err
	}
	s.log.WarnContext(ctx, "breaker opened", "hold", h.UUID, "namespace", n.Namespace, "handler", n.Handler,
		"failed", n.Failed, "ended", n.Concluded, "cause", n.Cause)
	s.counter.skipHeld([]tasker.Hold{h})
	loop.Wake(s.park)
	loop.Wake(s.wake)
	return nil
}
