// Package emission delivers events to sinks at least once and in order per task. It also creates
// the notifications about cases and routes them to sinks.
//
// The transaction of a change also writes its event into the outbox, so delivery cannot affect a
// task. Each sink has its own list of events to send and delays no other. Receivers recognize
// repetitions by id.
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

// A Retry is how often and after which delays an event is resent before it counts as failed.
type Retry struct {
	Attempts int
	Delay    time.Duration
}

// Options of a relay. DB must be given.
type Options struct {
	DB           *postgres.DB
	Sinks        []sink.Sink      // of events, and of messages
	Named        []sink.Sink      // of messages only
	Retry        Retry            // of topics that have none of their own
	Topics       map[string]Retry // by topic
	StoreTimeout time.Duration    // of one operation on the database; 0 means 2 s
	EmitTimeout  time.Duration    // of one try; 0 means 5 s
	LookEvery    time.Duration    // for events, while there are some or were lately; 0 means 500 ms
	IdleEvery    time.Duration    // for events, while there are none and nothing wakes the relay; 0 means sixty times LookEvery
	PerSecond    int              // events that go to one sink at most; 0 means no limit
	Refusals     int              // after which an event is set aside; 0 means 5
	Concurrency  int              // tasks whose events are sent to one sink at once; 0 means 8
	Counts       Counts           // nil means that nothing is counted
	Log          *slog.Logger
	Now          func() time.Time // by which rests and rates are kept; time.Now by default
}

// Counts is who wants to know.
type Counts interface {
	// EmitFailed counts an event that could not be sent, all its tries spent.
	EmitFailed(ctx context.Context, topic, sink string)
	// Emitted counts events that a sink has confirmed, and how long after they had
	// happened.
	Emitted(ctx context.Context, topic, sink string, after time.Duration)
	// EventSetAside counts an event that a sink refused too often.
	EventSetAside(ctx context.Context, topic, sink string)
}

type uncounted struct{}

func (uncounted) EmitFailed(context.Context, string, string)             {}
func (uncounted) Emitted(context.Context, string, string, time.Duration) {}
func (uncounted) EventSetAside(context.Context, string, string)          {}

// Relay sends events.
type Relay struct {
	Options
	id    tasker.ID
	lines []*sinkWorker
}

// New returns a relay that does nothing before Run.
func New(o Options) *Relay {
	o.StoreTimeout = cmp.Or(o.StoreTimeout, 2*time.Second)
	o.EmitTimeout = cmp.Or(o.EmitTimeout, 5*time.Second)
	o.LookEvery = cmp.Or(o.LookEvery, 500*time.Millisecond)
	o.IdleEvery = cmp.Or(o.IdleEvery, 60*o.LookEvery)
	o.Refusals = cmp.Or(o.Refusals, 5)
	o.Concurrency = cmp.Or(o.Concurrency, 8)
	if o.Counts == nil {
		o.Counts = uncounted{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Relay{Options: o, id: tasker.NewID()}
	for i, s := range slices.Concat(r.Sinks, r.Named) {
		r.lines = append(r.lines, &sinkWorker{Relay: r, sink: s, events: i < len(r.Sinks), log: r.Log.With("sink", s.Name()), wake: make(chan struct{}, 1)})
	}
	return r
}

// Wake has the relay look for events now. It does not wait.
func (r *Relay) Wake() {
	for _, l := range r.lines {
		loop.Wake(l.wake)
	}
}

// Run sends events until ctx ends. One relay at a time sends to a sink.
func (r *Relay) Run(ctx context.Context) error {
	if len(r.lines) == 0 {
		<-ctx.Done()
		return nil
	}
	g := loop.NewGroup(ctx)
	for _, l := range r.lines {
		g.Go("send events to "+l.sink.Name(), l.run)
	}
	return g.Wait()
}

const (
	adoptEvery   = time.Minute
	adoptTimeout = time.Minute // the first pass also settles what the sinks have not got
	adoptAtOnce  = 1000
)

// Loops returns what is done for events although there may be no sink.
func (r *Relay) Loops() []*loop.Loop {
	return []*loop.Loop{{Name: "adopt events of a restored database", Interval: adoptEvery, Backoff: firstRest, Timeout: adoptTimeout, Optional: true, Pass: r.MarkRestored, Log: r.Log}}
}

// MarkRestored marks events of a database that was restored from a dump, some in one transaction.
func (r *Relay) MarkRestored(ctx context.Context) (time.Duration, error) {
	n, err := r.DB.MarkRestoredEvents(ctx, adoptAtOnce)
	if n > 0 {
		r.Log.InfoContext(ctx, "the database was restored from a dump: its events are marked as old", "events", n)
	}
	if n == adoptAtOnce {
		return loop.AtOnce, err
	}
	return 0, err
}

// retry is the policy of a topic.
func (r *Relay) retry(topic string) Retry {
	if own, ok := r.Topics[topic]; ok {
		return own
	}
	return r.Retry
}
