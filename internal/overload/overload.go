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

// A Class is requests that are limited together.
type Class string

// The classes.
const (
	// Exempt is never refused: health, metrics, and what is served from memory.
	Exempt Class = "exempt"
	// Reports is what workers send of steps that they hold: heartbeats, results, leases
	// given back. Refused, they would cost leases; there are as many as the claims allow.
	Reports Class = "reports"
	// Claims is workers that ask for steps, and wait for some.
	Claims Class = "claims"
	// Operations is what operators do: repairs, cancellations, keys.
	Operations Class = "operations"
	// Reads is lists, statistics, details and pages.
	Reads Class = "reads"
	// Creates is new tasks and templates.
	Creates Class = "creates"
	// BulkCreates is many tasks by one request.
	BulkCreates Class = "bulk_creates"
	// Streams is live feeds of events, which count their readers themselves.
	Streams Class = "streams"
)

// Classes returns all of them.
func Classes() []Class {
	return []Class{Exempt, Reports, Claims, Operations, Reads, Creates, BulkCreates, Streams}
}

// isRateLimited reports whether requests of the class count for the rate of their caller. What
// workers do is bounded by the number of steps and workers.
func (c Class) isRateLimited() bool {
	return slices.Contains([]Class{Operations, Reads, Creates, BulkCreates, Streams}, c)
}

// A Limit is how many requests of a class there may be. The zero Limit is none.
type Limit struct {
	Running int           // served at the same time; 0: any number
	Waiting int           // that wait for their turn beside them
	Wait    time.Duration // of one at most
}

// Share returns how many of n one caller may have, so that others find room at any time.
func Share(n int) int { return (n + 1) / 2 }

// Options of a [Gate].
type Options struct {
	Limits map[Class]Limit // of the classes; one without has no limit
	Rate   float64         // requests of one caller a second; 0: any number
	Now    func() time.Time
}

// A Gate admits requests of one server. It is safe for concurrent use; nil admits all.
type Gate struct {
	classes map[Class]*queue
	callers *Rate
}

// New returns a gate that has taken nothing yet.
func New(o Options) *Gate {
	g := &Gate{classes: map[Class]*queue{}, callers: NewRate(o.Rate, o.Now)}
	for _, c := range Classes() {
		g.classes[c] = newQueue(o.Limits[c])
	}
	return g
}

// Acquire returns when a request of a class may be served: it is [Gate.Admit] and [Gate.NextActor].
func (g *Gate) Acquire(ctx context.Context, class Class, caller string) (leave func(), err error) {
	if err := g.Admit(class, caller); err != nil {
		return nil, err
	}
	return g.Wait(ctx, class, caller)
}

// Admit counts a request for the rate of its caller, and refuses one that would have no turn
// and no place to wait for one. What follows it, such as reading the body, takes no turn. The
// error is a [Refusal].
func (g *Gate) Admit(class Class, caller string) error {
	if g == nil {
		return nil
	}
	q := g.classes[class]
	if class.isRateLimited() && caller != "" {
		if wait := g.callers.take(caller); wait > 0 {
			q.overRate.Add(1)
			return tooFast(wait, fmt.Sprintf("%s sends more than %g requests a second (limits.requests_per_second)", caller, g.callers.perSecond))
		}
	}
	if full, is := q.isFull(caller); is {
		return refuse(class, q.limit, full)
	}
	return nil
}

// Wait returns when a request of a class that was admitted may be served. The request is over when leave
// was called, which may be called several times. The error is a [Refusal] or that of ctx.
// A caller without a name shares with nobody: one of a server that asks nobody who they are.
func (g *Gate) Wait(ctx context.Context, class Class, caller string) (leave func(), err error) {
	if g == nil {
		return func() {}, nil
	}
	q := g.classes[class]
	t, err := q.enter(ctx, caller)
	if err != nil {
		if full, ok := err.(errFull); ok { //nolint:errorlint // it is never wrapped
			return nil, refuse(class, q.limit, full)
		}
		return nil, err
	}
	return sync.OnceFunc(func() { q.leave(t) }), nil
}

// A Refusal is an error that says that there are too many requests, of the server or of
// one caller. It wraps a [tasker.Error] with the code Unavailable.
type Refusal struct {
	error
	TooFast bool // the caller's own rate is the reason
}

// Status returns the HTTP status that it is answered with.
func (r Refusal) Status() int {
	if r.TooFast {
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// Unwrap returns what is wrong.
func (r Refusal) Unwrap() error { return r.error }

func tooFast(wait time.Duration, text string) Refusal {
	return Refusal{TooFast: true, error: &tasker.Error{
		Code: tasker.Unavailable, Message: text + "; try again after the rest in Retry-After", RetryAfter: wait,
	}}
}

const (
	leastRest = time.Second
	moreRest  = 2 * time.Second // at random, so that not all come back at the same time
)

func refuse(class Class, l Limit, full errFull) Refusal {
	text := fmt.Sprintf("the server has too many requests of the class %s: %d are served at the same time", class, l.Running)
	if full.byCaller {
		text = fmt.Sprintf("the caller has too many requests of the class %s at the same time: others wait, and one has at most half of the %d that are served", class, l.Running)
	}
	return Refusal{error: &tasker.Error{
		Code: tasker.Unavailable, Message: text + " (limits." + string(class) + "); try again after the rest in Retry-After",
		RetryAfter: leastRest + rand.N(moreRest),
	}}
}

// A Count is what became of the requests of a class since the start, and what there are.
type Count struct {
	Class                                              Class
	Running, Waiting                                   int
	Admitted, RejectedFull, TimedOut, RejectedFairness int64 // TimedOut: those that waited for too long
	RejectedRate                                       int64
}

// Counts returns what there is of each class.
func (g *Gate) Counts() []Count {
	var list []Count
	if g == nil {
		return nil
	}
	for _, c := range Classes() {
		n := g.classes[c].count()
		n.Class = c
		list = append(list, n)
	}
	return list
}

// counters are what became of requests.
type counters struct{ taken, full, overTime, overShare, overRate atomic.Int64 }
