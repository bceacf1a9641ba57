package engine

import (
	"context"
	"sync"
	"time"
)

// heartbeatsOfALease is how many heartbeats fit into a lease.
const heartbeatsOfALease = 3

// leastOutage is how long workers may go unheard before their leases get more time.
const leastOutage = 2 * time.Second

// A leaseGrace is the time that workers get to be heard of after nobody could be
// heard: the database took no writes, or this server stood still. Their leases have
// run out in the meantime, by no fault of theirs, and their work may be done.
type leaseGrace struct {
	mu     sync.Mutex
	outage time.Duration // without an answer of the database for longer than this
	lasts  time.Duration
	heard  time.Time // when the database last took writes
	ends   time.Time // zero: none is under way
}

// away notes that the database takes no writes.
func (g *leaseGrace) away() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends = time.Time{}
}

// over notes that the database takes writes, and says whether leases that have run
// out count. A grace that has begun ends, however slow this server is.
func (g *leaseGrace) over(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ends.IsZero() && now.Sub(g.heard) > g.outage {
		g.ends = now.Add(g.lasts)
	}
	g.heard = now
	if now.Before(g.ends) {
		return false
	}
	g.ends = time.Time{}
	return true
}

// passed notes the end of a pass, which is not an outage however long it took.
func (g *leaseGrace) passed(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard = now
}

// reclaimPass makes a pass that takes steps from workers that fell silent, when
// they could have been heard.
func (e *Engine) reclaimPass(pass func(context.Context) (time.Duration, error)) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		if err := e.db.Writable(ctx); err != nil {
			e.leaseGrace.away()
			return 0, err
		}
		if !e.leaseGrace.over(e.now()) {
			return 0, nil
		}
		next, err := pass(ctx)
		if err == nil {
			e.leaseGrace.passed(e.now())
		}
		return next, err
	}
}
