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
	Tasks    int // minimum tasks of these attempts, at most [MaxBreakerTasks]
	Share    int // minimum percentage of the ended attempts
	Window   time.Duration
}

func (b Breaker) on() bool { return b.Failures > 0 }

// Limits of the counts of one server.
const (
	MaxBreakerTasks = 100
	maxQueues       = 1000 // handlers
	maxCauses       = 20   // per handler
)

// shareFrom is the number of failures with one cause from which a server shares its counts.
const shareFrom = 3

type queue struct{ namespace, handler string }

// counts holds the ended attempts of one handler within the window, by second.
type counts struct {
	ended  map[int64]int
	causes map[string]*cause
}

type cause struct {
	pattern string
	failed  map[int64]int
	tasks   map[tasker.ID]int64 // second of the last failure of each task, at most MaxBreakerTasks
}

// counter counts the attempts that end on this server.
type counter struct {
	Breaker
	now  func() time.Time
	mu   sync.Mutex
	of   map[queue]*counts
	held map[queue]bool // a breaker holds them already
}

func newCounter(b Breaker, now func() time.Time) *counter {
	return &counter{Breaker: b, now: now, of: map[queue]*counts{}}
}

func (c *counter) add(list []engine.Attempt) {
	if !c.on() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	second := c.now().Unix()
	for _, a := range list {
		q := queue{a.Namespace, a.Handler}
		of := c.of[q]
		if c.held[q] || of == nil && (len(c.of) >= maxQueues || a.Failure == nil && len(c.of) >= maxQueues/2) {
			continue // half of the queues are reserved for failures
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
	n := fingerprint.Normalise(fingerprint.Failure{Type: f.Type, Message: f.Message, Given: f.Fingerprint})
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

// hold sets the queues that breakers hold. Their counts restart afterwards.
func (c *counter) hold(open []tasker.Hold) {
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

// take returns counts to share and drops old ones. It includes queues whose failures others
// reported.
func (c *counter) take(reported map[queue]bool) []postgres.BreakerCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := c.now().Add(-c.Window).Unix()
	var list []postgres.BreakerCount
	for q, of := range c.of {
		ended, before := sum(of.ended, since), len(list)
		for key, why := range of.causes {
			failed := why.since(since)
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

// since returns the number of failures since a second, and drops older ones.
func (why *cause) since(second int64) int {
	maps.DeleteFunc(why.tasks, func(_ tasker.ID, at int64) bool { return at < second })
	return sum(why.failed, second)
}

// sum returns the total since a second, and drops older entries.
func sum(of map[int64]int, since int64) (n int) {
	for second, k := range of {
		if second < since {
			delete(of, second)
			continue
		}
		n += k
	}
	return n
}

// opens reports whether the counts of all servers open a breaker.
func (b Breaker) opens(n postgres.BreakerCount) bool {
	return b.on() && n.Failed >= b.Failures && n.Tasks >= b.Tasks && n.Failed*100 >= n.Concluded*b.Share
}

// Concluded counts attempts that ended on this server. It does not block.
func (s *Service) Concluded(list []engine.Attempt) { s.counter.add(list) }

// Break shares failure counts and opens breakers.
func (s *Service) Break(ctx context.Context) (time.Duration, error) {
	if !s.breaker.on() {
		return 0, nil
	}
	defer s.unopened.forget(s.counter.now().Add(-s.breaker.Window))
	others, err := s.db.FailingQueues(ctx, s.server, countsHold)
	if err != nil {
		return 0, err
	}
	reported := map[queue]bool{}
	for _, q := range others {
		reported[queue{q.Namespace, q.Handler}] = true
	}
	list := s.counter.take(reported)
	s.countPublishedPasses(list)
	if len(list) == 0 {
		return 0, nil
	}
	sums, err := s.db.ShareBreakerCounts(ctx, s.server, list, countsHold)
	if err != nil {
		return 0, err
	}
	var failed error
	for _, n := range sums {
		if s.sharedPasses[queue{n.Namespace, n.Handler}] <= answerPasses || !s.breaker.opens(n) {
			continue
		}
		failed = errors.Join(failed, s.openOnce(ctx, n)) // a failure delays no other breaker
	}
	return 0, failed
}

// openOnce opens a breaker unless one is open. If there are too many holds, it logs that, and a
// later pass retries.
func (s *Service) openOnce(ctx context.Context, n postgres.BreakerCount) error {
	err := s.open(ctx, n)
	switch q := (queue{n.Namespace, n.Handler}); {
	case errors.Is(err, postgres.ErrTooManyHolds):
		if s.unopened.note(q, s.counter.now()) {
			s.log.ErrorContext(ctx, "a breaker cannot open: too many holds are open, and steps go on to fail", "namespace", n.Namespace, "handler", n.Handler,
				"failed", n.Failed, "ended", n.Concluded, "cause", n.Cause, "err", err)
		}
		return nil
	case err == nil, tasker.CodeOf(err) == tasker.Conflict:
		s.unopened.drop(q)
		return nil
	default:
		return fmt.Errorf("open a breaker of handler %s of namespace %s: %w", n.Handler, n.Namespace, err)
	}
}

// Unopened returns the number of handlers whose breakers this server cannot open because of too
// many holds.
func (s *Service) Unopened() int64 { return s.unopened.count() }

// suppressedBreakers holds the handlers whose breakers could not be opened because of too many
// holds.
type suppressedBreakers struct {
	mu sync.Mutex
	of map[queue]*refusedOpening
}

// refusedOpening records when a breaker was last refused and when that was last logged.
type refusedOpening struct{ at, logged time.Time }

// logUnopenedEvery is the minimum interval between two log entries about the same handler.
const logUnopenedEvery = time.Minute

// note records a refused breaker and reports whether to log it.
func (u *suppressedBreakers) note(q queue, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.of[q]
	if r == nil {
		if u.of == nil {
			u.of = map[queue]*refusedOpening{}
		}
		r = &refusedOpening{}
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

// forget drops handlers that were last refused before a time: their attempts no longer fail.
func (u *suppressedBreakers) forget(before time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.of, func(_ queue, r *refusedOpening) bool { return r.at.Before(before) })
}

func (u *suppressedBreakers) count() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return int64(len(u.of))
}

// answerPasses is the number of passes in which other servers can share their counts before a
// breaker opens. Every server makes a pass in this time.
const answerPasses = 2

// countPublishedPasses counts the consecutive passes in which this server has shared failures of
// each queue.
func (s *Service) countPublishedPasses(list []postgres.BreakerCount) {
	passes := map[queue]int{}
	for _, n := range list {
		if q := (queue{n.Namespace, n.Handler}); n.CauseKey != "" {
			passes[q] = s.sharedPasses[q] + 1
		}
	}
	s.sharedPasses = passes
}

// countsHold is the validity of shared counts.
const countsHold = 5 * time.Second

// open holds the steps of a handler until a probe succeeds.
func (s *Service) open(ctx context.Context, n postgres.BreakerCount) error {
	// This fits into a reason, since the pattern of a cause is bounded.
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
	s.counter.hold([]tasker.Hold{h})
	loop.Wake(s.park)
	loop.Wake(s.wake)
	return nil
}
