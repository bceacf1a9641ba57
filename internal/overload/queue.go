package overload

import (
	"context"
	"slices"
	"sync"
	"time"
)

// queue contains the running and waiting requests of a class.
type queue struct {
	limit Limit
	counters

	mu      sync.Mutex
	running int
	waiting int
	callers map[string]*caller
	turns   []*caller // callers with waiting requests, next one first
}

// caller contains the running and waiting requests of one caller.
type caller struct {
	name    string
	running int
	waiting []*ticket // in order of arrival
}

// ticket is a running or waiting request.
type ticket struct {
	of      *caller
	turn    chan struct{} // closed when it runs or is evicted
	evicted bool          // for a caller with fewer requests; set before turn is closed
}

// errFull means that the queue is full, or that a request waited too long.
type errFull struct{ byCaller bool }

func (errFull) Error() string { return "too many requests" }

func newQueue(l Limit) *queue { return &queue{limit: l, callers: map[string]*caller{}} }

// enter waits until a request may run.
func (q *queue) enter(ctx context.Context, name string) (*ticket, error) {
	t, err := q.join(name)
	if err != nil || t.turn == nil {
		return t, err
	}
	timer := time.NewTimer(q.limit.Wait)
	defer timer.Stop()
	select {
	case <-t.turn:
		if t.evicted {
			return nil, errFull{byCaller: true}
		}
		return t, nil
	case <-timer.C:
		err = errFull{}
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !q.withdraw(t) { // its turn came concurrently
		if t.evicted {
			return nil, err
		}
		return t, nil
	}
	if ctx.Err() == nil {
		q.overTime.Add(1)
	}
	return nil, err
}

// join lets a request run, queues it, or refuses it.
func (q *queue) join(name string) (*ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.callerQueue(name)
	t := &ticket{of: c}
	if full, is := q.checkPlace(c); is {
		return nil, full
	}
	q.callers[name] = c
	if q.canRun(c) {
		q.run(c)
		return t, nil
	}
	if q.waiting >= q.limit.Waiting {
		q.makeRoom()
	}
	t.turn = make(chan struct{})
	if c.waiting = append(c.waiting, t); len(c.waiting) == 1 {
		q.turns = append(q.turns, c)
	}
	q.waiting++
	return t, nil
}

func (q *queue) callerQueue(name string) *caller {
	if c := q.callers[name]; c != nil {
		return c
	}
	return &caller{name: name}
}

// isFull reports whether a request of a caller could neither run nor wait.
func (q *queue) isFull(name string) (errFull, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.checkPlace(q.callerQueue(name))
}

// checkPlace reports whether a request of c can neither run nor wait. It counts such requests.
func (q *queue) checkPlace(c *caller) (errFull, bool) {
	switch {
	case q.canRun(c):
		return errFull{}, false
	case q.running < q.limit.Running && q.limit.Waiting == 0, c.name != "" && q.limit.Waiting > 0 && len(c.waiting) >= Share(q.limit.Waiting):
		q.overShare.Add(1)
		return errFull{byCaller: true}, true
	case q.waiting >= q.limit.Waiting && !q.canMakeRoom(c):
		q.full.Add(1)
		return errFull{}, true
	}
	return errFull{}, false
}

// canMakeRoom reports whether another caller has so many waiting requests that one of them can be
// evicted for a request of c.
func (q *queue) canMakeRoom(c *caller) bool {
	return len(q.turns) > 0 && len(q.longestCaller().waiting) > len(c.waiting)+1
}

// longestCaller returns the caller with the most waiting requests.
func (q *queue) longestCaller() *caller {
	return slices.MaxFunc(q.turns, func(a, b *caller) int { return len(a.waiting) - len(b.waiting) })
}

// makeRoom evicts the last request of the caller with the most waiting requests.
func (q *queue) makeRoom() {
	most := q.longestCaller()
	last := most.waiting[len(most.waiting)-1]
	most.waiting = most.waiting[:len(most.waiting)-1]
	q.waiting--
	q.overShare.Add(1)
	last.evicted = true
	close(last.turn)
}

// canRun reports whether another request of a caller may run now. If so, none of the caller's
// requests wait, see leave.
func (q *queue) canRun(c *caller) bool {
	if q.limit.Running == 0 {
		return true
	}
	return q.running < q.limit.Running && (c.name == "" || c.running < Share(q.limit.Running))
}

func (q *queue) run(c *caller) {
	c.running++
	q.running++
	q.taken.Add(1)
}

// leave ends a request and runs the next one.
func (q *queue) leave(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	t.of.running--
	q.forget(t.of)
	at := slices.IndexFunc(q.turns, q.canRun)
	if at < 0 {
		return
	}
	c := q.turns[at]
	q.turns = slices.Delete(q.turns, at, at+1)
	next := c.waiting[0]
	if c.waiting = slices.Delete(c.waiting, 0, 1); len(c.waiting) > 0 {
		q.turns = append(q.turns, c) // behind the others
	}
	q.waiting--
	q.run(c)
	close(next.turn)
}

// withdraw removes a waiting request. It returns false if the request was no longer waiting.
func (q *queue) withdraw(t *ticket) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.Index(t.of.waiting, t)
	if at < 0 {
		return false
	}
	q.waiting--
	if t.of.waiting = slices.Delete(t.of.waiting, at, at+1); len(t.of.waiting) == 0 {
		q.turns = slices.DeleteFunc(q.turns, func(c *caller) bool { return c == t.of })
		q.forget(t.of)
	}
	return true
}

// forget removes a caller that has no requests.
func (q *queue) forget(c *caller) {
	if c.running == 0 && len(c.waiting) == 0 {
		delete(q.callers, c.name)
	}
}

func (q *queue) snapshot() Count {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Count{
		Running: q.running, Waiting: q.waiting, Admitted: q.taken.Load(), RejectedFull: q.full.Load(),
		TimedOut: q.overTime.Load(), RejectedFairness: q.overShare.Load(), RejectedRate: q.overRate.Load(),
	}
}
