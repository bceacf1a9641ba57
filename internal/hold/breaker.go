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

// A Breaker configures when failures with one cause open a breaker; zero disables it.
type Breaker struct {
	Failures int // so many failed attempts with one cause within Window
	Tasks    int // of at least so many tasks, at most [MaxBreakerTasks]
	Share    int // and so many of 100 attempts of the handler that ended
	Window   time.Duration
}

func (b Breaker) on() bool { return b.Failures > 0 }

// Bounds of what a server counts.
const (
	MaxBreakerTasks = 100
	maxQueues       = 1000 // handlers that it counts at a time
	maxCauses       = 20   // of each
)

// shareFrom is from how many failures of one cause on a server tells others of it.
const shareFrom = 3

// A queue is a handler of a namespace.
type queue struct{ namespace, handler string }

// counts are the attempts of one handler that ended within the window, second by second.
type counts struct {
	ended  map[int64]int
	causes map[string]*cause
}

// A cause is what attempts failed with.
type cause struct {
	pattern string
	failed  map[int64]int
	tasks   map[tasker.ID]int64 // the second of the last failure of each, as many as matter
}

// A counter counts attempts that end on this server.
type counter struct {
	Breaker
	now  func() time.Time
	mu   sync.Mutex
	of   map[queue]*counts
	held map[queue]bool // a breaker holds them: what fails there is known
}

func newCounter(b Breaker, now func() time.Time) *counter {
	return &counter{Breaker: b, now: now, of: map[queue]*counts{}}
}

// add counts attempts that ended.
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
			continue // half of them are for those that fail
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

// hold says of which queues a breaker holds the steps: they are counted anew afterwards.
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

// take returns counts worth sharing and drops old ones, including queues that others reported.
func (c *counter) take(told map[queue]bool) []postgres.BreakerCount {
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
		if ended > 0 && len(list) == before && told[q] {
			list = append(list, postgres.BreakerCount{Namespace: q.namespace, Handler: q.handler, Concluded: ended})
		}
		if ended == 0 && len(of.causes) == 0 {
			delete(c.of, q)
		}
	}
	return list
}

// since returns how many attempts have failed since a second, and forgets those before.
func (why *cause) since(second int64) int {
	maps.DeleteFunc(why.tasks, func(_ tasker.ID, at int64) bool { return at < second })
	return sum(why.failed, second)
}

// sum adds up the seconds since one, and removes those before it.
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

// opens reports whether a breaker opens by what all servers have counted.
func (b Breaker) opens(n postgres.BreakerCount) bool {
	return b.on() && n.Failed >= b.Failures && n.Tasks >= b.Tasks && n.Failed*100 >= n.Concluded*b.Share
}

// Concluded is told of attempts that ended on this server; it does not wait.
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
	told := map[queue]bool{}
	for _, q := range others {
		told[queue{q.Namespace, q.Handler}] = true
	}
	list := s.counter.take(told)
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
		if s.asked[queue{n.Namespace, n.Handler}] <= answerPasses || !s.breaker.opens(n) {
			continue
		}
		failed = errors.Join(failed, s.openOnce(ctx, n)) // one that cannot be opened holds up no other
	}
	return 0, failed
}

// openOnce opens a breaker unless one is open. Without room it is reported and retried.
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

// Unopened is of how many handlers this server would open a breaker, if there were not too many holds.
func (s *Service) Unopened() int64 { return s.unopened.count() }

// suppressedBreakers are the handlers whose breakers there was no room for.
type suppressedBreakers struct {
	mu sync.Mutex
	of map[queue]*refusedOpening
}

// A refusedOpening is when a breaker was refused last, and when the log last said so.
type refusedOpening struct{ at, said time.Time }

// sayUnopenedEvery is how often the log says of a handler that its breaker cannot open.
const sayUnopenedEvery = time.Minute

// note notes that a breaker was refused, and reports whether to say so.
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
	if now.Sub(r.said) < sayUnopenedEvery {
		return false
	}
	r.said = now
	return true
}

func (u *suppressedBreakers) drop(q queue) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.of, q)
}

// forget drops those that were last refused before an instant: their attempts fail no more.
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

// answerPasses is how many passes others get to tell how many attempts ended there, before a
// breaker opens: one of theirs falls between the first and the last of them.
const answerPasses = 2

// countPublishedPasses counts the passes in which this server has told others of failures of a queue.
func (s *Service) countPublishedPasses(list []postgres.BreakerCount) {
	asked := map[queue]int{}
	for _, n := range list {
		if q := (queue{n.Namespace, n.Handler}); n.CauseKey != "" {
			asked[q] = s.asked[q] + 1
		}
	}
	s.asked = asked
}

// countsHold is for how long what a server has shared holds.
const countsHold = 5 * time.Second

// open has the steps of a handler held until a probe succeeds.
func (s *Service) open(ctx context.Context, n postgres.BreakerCount) error {
	// No longer than a reason may be: the pattern of a cause has a bound.
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
	s.log.WarnContext(ctx, "a breaker holds the steps of a handler", "hold", h.UUID, "namespace", n.Namespace, "handler", n.Handler,
		"failed", n.Failed, "ended", n.Concluded, "cause", n.Cause)
	s.counter.hold([]tasker.Hold{h})
	loop.Wake(s.aside)
	loop.Wake(s.wake)
	return nil
}
