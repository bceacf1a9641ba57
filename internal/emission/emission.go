// Package emission delivers events to sinks, at least once and in order per task. It also creates
// notifications about cases and routes them to sinks.
//
// The transaction that makes a change also writes its event to the outbox, so delivery cannot
// affect a task. Each sink has its own delivery list and does not delay the others. Receivers
// deduplicate events by id.
package emission

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/sink"
)

// A Retry defines how often and at which interval a delivery is retried before it fails.
type Retry struct {
	Attempts int
	Delay    time.Duration
}

// Options configures a Relay. Only DB is required.
type Options struct {
	DB           *postgres.DB
	Sinks        []sink.Sink      // receive events and messages
	Named        []sink.Sink      // receive messages only
	Retry        Retry            // for topics without their own policy
	Topics       map[string]Retry // by topic
	StoreTimeout time.Duration    // limit for one database operation; default 2 s
	EmitTimeout  time.Duration    // limit for one attempt; default 5 s
	PollInterval time.Duration    // interval while there are events or were recently; default 500 ms
	IdleInterval time.Duration    // interval while there are none; default 60 times PollInterval
	PerSecond    int              // rate limit of each sink, in events; 0 means none
	Refusals     int              // rejections after which an event is undeliverable; default 5
	Concurrency  int              // number of tasks whose events are sent to a sink concurrently; default 8
	Counts       Counts           // optional
	Log          *slog.Logger
	Now          func() time.Time // clock for delays and rate limits; default time.Now
}

// Counts receives metrics about deliveries.
type Counts interface {
	// EmitFailed counts an event for which all attempts have failed.
	EmitFailed(ctx context.Context, topic, sink string)
	// Emitted counts an event that the sink confirmed. The argument after is the time since the
	// change.
	Emitted(ctx context.Context, topic, sink string, after time.Duration)
	// EventDropped counts an event that became undeliverable because the sink rejected it too
	// often.
	EventDropped(ctx context.Context, topic, sink string)
}

type noCounts struct{}

func (noCounts) EmitFailed(context.Context, string, string)             {}
func (noCounts) Emitted(context.Context, string, string, time.Duration) {}
func (noCounts) EventDropped(context.Context, string, string)           {}

// Relay delivers events to sinks. Create it with [New].
type Relay struct {
	Options
	id      tasker.ID
	workers []*sinkWorker
}

// New returns a Relay. Call Run to start it.
func New(o Options) *Relay {
	o.StoreTimeout = cmp.Or(o.StoreTimeout, 2*time.Second)
	o.EmitTimeout = cmp.Or(o.EmitTimeout, 5*time.Second)
	o.PollInterval = cmp.Or(o.PollInterval, 500*time.Millisecond)
	o.IdleInterval = cmp.Or(o.IdleInterval, 60*o.PollInterval)
	o.Refusals = cmp.Or(o.Refusals, 5)
	o.Concurrency = cmp.Or(o.Concurrency, 8)
	if o.Counts == nil {
		o.Counts = noCounts{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Relay{Options: o, id: tasker.NewID()}
	for i, s := range slices.Concat(r.Sinks, r.Named) {
		r.workers = append(r.workers, &sinkWorker{
			Relay: r, sink: s, events: i < len(r.Sinks), log: r.Log.With("sink", s.Name()), wake: make(chan struct{}, 1),
		})
	}
	return r
}

// Wake makes the relay poll for events now. It does not block.
func (r *Relay) Wake() {
	for _, l := range r.workers {
		loop.Wake(l.wake)
	}
}

// Run delivers events until ctx ends. For each sink, a lease ensures that only one relay sends to
// it.
func (r *Relay) Run(ctx context.Context) error {
	if len(r.workers) == 0 {
		<-ctx.Done()
		return nil
	}
	g := loop.NewGroup(ctx)
	for _, l := range r.workers {
		g.Go("send events to "+l.sink.Name(), l.run)
	}
	return g.Wait()
}

const (
	adoptEvery   = time.Minute
	adoptTimeout = time.Minute // the first pass also marks all undelivered events
	adoptAtOnce  = 1000
)

// Loops returns the background loops that must run even if there are no sinks.
func (r *Relay) Loops() []*loop.Loop {
	return []*loop.Loop{{
		Name: "adopt events of a restored database", Interval: adoptEvery, Backoff: firstBackoff, Timeout: adoptTimeout,
		Optional: true, Pass: r.MarkRestored, Log: r.Log,
	}}
}

// MarkRestored marks a batch of events as old if the database was restored from a dump.
func (r *Relay) MarkRestored(ctx context.Context) (time.Duration, error) {
	n, err := r.DB.MarkRestoredEvents(ctx, adoptAtOnce)
	if n > 0 {
		r.Log.InfoContext(ctx, "the database was restored from a dump; marked its events as old", "events", n)
	}
	if n == adoptAtOnce {
		return loop.AtOnce, err
	}
	return 0, err
}

// retryFor returns the retry policy of a topic.
func (r *Relay) retryFor(topic string) Retry {
	if own, ok := r.Topics[topic]; ok {
		return own
	}
	return r.Retry
}
