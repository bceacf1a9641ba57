// Package overload implements admission control: concurrency limits and bounded queues per class
// of request, fair queueing among callers, and rate limits per caller and address.
//
// Every request belongs to a [Class] with its own limits, so a surge of creates does not delay
// heartbeats, reports or operators. Requests beyond the queue are refused with a retry time.
package overload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tasker.example/tasker"
)

// Class is a class of requests with a common limit.
type Class string

// The classes.
const (
	// Exempt requests are never refused: health, metrics, and responses from memory.
	Exempt Class = "exempt"
	// Reports contains the requests of workers about their steps: heartbeats, results, released
	// leases. Refusing them would cost leases. Their number is limited by claims.
	Reports Class = "reports"
	// Claims contains the claims of workers.
	Claims Class = "claims"
	// Operations contains the changes of operators: repairs, cancellations, keys.
	Operations Class = "operations"
	// Reads contains lists, statistics, details and pages.
	Reads Class = "reads"
	// Creates contains new tasks and templates.
	Creates Class = "creates"
	// BulkCreates contains requests that create many tasks.
	BulkCreates Class = "bulk_creates"
	// Streams contains live feeds of events, which limit their readers themselves.
	Streams Class = "streams"
)

// Classes returns all classes.
func Classes() []Class {
	return []Class{Exempt, Reports, Claims, Operations, Reads, Creates, BulkCreates, Streams}
}

// isRateLimited reports whether the rate limit of callers applies to the class. The requests of workers
// are limited by the number of steps and workers.
func (c Class) isRateLimited() bool {
	return slices.Contains([]Class{Operations, Reads, Creates, BulkCreates, Streams}, c)
}

// Limit limits the requests of a class. The zero Limit allows all requests.
type Limit struct {
	Running int           // concurrent requests; 0: no limit
	Waiting int           // queued requests
	Wait    time.Duration // maximum time in the queue
}

// Share returns how many of n slots one caller may use, so that there is always room for others.
func Share(n int) int { return (n + 1) / 2 }

// Options configures a [Gate].
type Options struct {
	Limits map[Class]Limit // missing classes have no limit
	Rate   float64         // requests per second and caller; 0: no limit
	Now    func() time.Time
}

// Gate admits the requests to a server. It is safe for concurrent use. A nil Gate admits all
// requests.
type Gate struct {
	classes map[Class]*queue
	callers *Rate
}

// New returns a gate.
func New(o Options) *Gate {
	g := &Gate{classes: map[Class]*queue{}, callers: NewRate(o.Rate, o.Now)}
	for _, c := range Classes() {
		g.classes[c] = newQueue(o.Limits[c])
	}
	return g
}

// Acquire combines [Gate.Admit] and [Gate.Wait].
func (g *Gate) Acquire(ctx context.Context, class Class, caller string) (leave func(), err error) {
	if err := g.Admit(class, caller); err != nil {
		return nil, err
	}
	return g.Wait(ctx, class, caller)
}

// Admit counts a request against the rate limit of its caller, and refuses it if it could neither
// run nor wait now. An admitted request occupies no slot yet, so that its body can be read first.
// The error is a [Refusal].
func (g *Gate) Admit(class Class, caller string) error {
	if g == nil {
		return nil
	}
	q := g.classes[class]
	if class.isRateLimited() && caller != "" {
		if wait := g.callers.takeToken(caller); wait > 0 {
			q.overRate.Add(1)
			return newRateRefusal(wait, fmt.Sprintf("%s exceeds %g requests per second (limits.requests_per_second)", caller, g.callers.perSecond))
		}
	}
	if full, is := q.isFull(caller); is {
		return newRefusal(class, q.limit, full)
	}
	return nil
}

// Wait waits until an admitted request may be served. leave releases its slot and may be called
// several times. The error is a [Refusal], or the error of ctx. A caller without a name, as on a
// server that does not authenticate, has no limit of its own.
func (g *Gate) Wait(ctx context.Context, class Class, caller string) (leave func(), err error) {
	if g == nil {
		return func() {}, nil
	}
	q := g.classes[class]
	t, err := q.enter(ctx, caller)
	if err != nil {
		if full, ok := err.(errFull); ok { //nolint:errorlint // never wrapped
			return nil, newRefusal(class, q.limit, full)
		}
		return nil, err
	}
	return sync.OnceFunc(func() { q.leave(t) }), nil
}

// Refusal is the error of a refused request. It wraps a [tasker.Error] with the code Unavailable.
type Refusal struct {
	error
	TooFast bool // the rate limit of the caller is exceeded
}

// Status returns the HTTP status of the response.
func (r Refusal) Status() int {
	if r.TooFast {
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// Unwrap implements errors.Unwrap.
func (r Refusal) Unwrap() error { return r.error }

func newRateRefusal(wait time.Duration, text string) Refusal {
	return Refusal{TooFast: true, error: &tasker.Error{
		Code: tasker.Unavailable, Message: text + "; retry after the delay in Retry-After", RetryAfter: wait,
	}}
}

const (
	leastDelay  = time.Second
	randomDelay = 2 * time.Second // spreads the retries
)

func newRefusal(class Class, l Limit, full errFull) Refusal {
	text := fmt.Sprintf("too many requests of the class %s: the server serves %d at once", class, l.Running)
	if full.byCaller {
		text = fmt.Sprintf("too many requests of the class %s by this caller: one caller may use at most half of the %d slots while others wait", class, l.Running)
	}
	return Refusal{error: &tasker.Error{
		Code: tasker.Unavailable, Message: text + " (limits." + string(class) + "); retry after the delay in Retry-After",
		RetryAfter: leastDelay + rand.N(randomDelay),
	}}
}

// Count contains the numbers of current requests of a class, and the totals since the start.
type Count struct {
	Class                                              Class
	Running, Waiting                                   int
	Admitted, RejectedFull, TimedOut, RejectedFairness int64 // TimedOut: in the queue
	RejectedRate                                       int64
}

// Counts returns the counts of all classes.
func (g *Gate) Counts() []Count {
	var list []Count
	if g == nil {
		return nil
	}
	for _, c := range Classes() {
		n := g.classes[c].snapshot()
		n.Class = c
		list = append(list, n)
	}
	return list
}

type counters struct{ taken, full, overTime, overShare, overRate atomic.Int64 }
