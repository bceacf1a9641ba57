package amqp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
)

// The delays between attempts to connect, declare or consume.
const (
	firstRest   = 250 * time.Millisecond
	longestRest = 10 * time.Second
)

// Options configures the broker. Zero fields but URL are defaults.
type Options struct {
	URL          string        // amqp://user:password@host:port/vhost, or amqps
	Name         string        // of the connection, as the broker lists it
	Exchange     string        // to which everything is published; tasker.executions
	DeadLetter   DeadLetter    // what becomes of messages that nobody took in time
	QueueTTL     time.Duration // of a message in a work queue; 5 minutes
	DialTimeout  time.Duration // of one attempt to connect, with its handshake; 2 s
	Heartbeat    time.Duration // 2 s; a silent broker is given up after three
	DeliverLimit int           // how often a work queue delivers a message again; 20
	Log          *slog.Logger  // nil: silent
}

// DeadLetter says what becomes of messages that expire in a work queue, or that
// it has delivered too often. When it is off, the broker drops them.
type DeadLetter struct {
	Enabled  bool
	Exchange string        // tasker.dlx
	TTL      time.Duration // of a message in the dead-letter queue; 24 hours
}

// Broker is a RabbitMQ, connected or not. It is safe for concurrent use.
type Broker struct {
	o     Options
	log   *slog.Logger
	vhost string

	mu      sync.Mutex
	session *session         // nil: not connected
	changed chan struct{}    // closed, and replaced, when session or ready change
	ready   bool             // the session has the exchange
	lost    error            // why there is no session
	faults  map[string]error // what the broker refuses, by the name of the thing
}

// errNotTried is why there is no connection before the first attempt.
var errNotTried = errors.New("not connected yet")

// New checks the options. It does not connect: that is for [Broker.Run].
func New(o Options) (*Broker, error) {
	uri, err := amqp091.ParseURI(o.URL)
	if err != nil {
		// The cause quotes the URL, and so the password.
		return nil, tasker.Errorf(tasker.Invalid, "the URL of the message broker cannot be used: it must be "+
			"amqp://user:password@host:port/vhost or amqps://…, with reserved characters of the password percent-encoded")
	}
	for name, d := range map[string]time.Duration{
		"dead-letter TTL": o.DeadLetter.TTL, "queue TTL": o.QueueTTL,
		"dial timeout": o.DialTimeout, "heartbeat": o.Heartbeat,
	} {
		if d < 0 {
			return nil, tasker.Errorf(tasker.Invalid, "the %s of the message broker must be positive, not %s", name, d)
		}
	}
	if o.DeliverLimit < 0 {
		return nil, tasker.Errorf(tasker.Invalid, "the delivery limit of the message broker must be positive, not %d", o.DeliverLimit)
	}
	o.Name = cmp.Or(o.Name, "tasker")
	o.Exchange = cmp.Or(o.Exchange, "tasker.executions")
	o.DeadLetter.Exchange = cmp.Or(o.DeadLetter.Exchange, "tasker.dlx")
	o.DeadLetter.TTL = cmp.Or(o.DeadLetter.TTL, 24*time.Hour)
	o.QueueTTL = cmp.Or(o.QueueTTL, 5*time.Minute)
	o.DialTimeout = cmp.Or(o.DialTimeout, 2*time.Second)
	o.Heartbeat = cmp.Or(o.Heartbeat, 2*time.Second)
	o.DeliverLimit = cmp.Or(o.DeliverLimit, 20)
	if len(o.Exchange) > longestName || len(o.DeadLetter.Exchange)+len(deadLetterSuffix) > longestName {
		return nil, tasker.Errorf(tasker.Invalid, "the name of an exchange of the message broker is longer than %d bytes", longestName)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Broker{
		o: o, log: o.Log, vhost: uri.Vhost,
		changed: make(chan struct{}),
		lost:    errNotTried,
		faults:  map[string]error{},
	}, nil
}

// Run maintains the connection until ctx ends, then returns nil: it connects, declares the
// exchanges and the dead-letter queue, and repeats that after a loss. At the end consumers get a
// moment to settle. It must not run twice at a time.
func (b *Broker) Run(ctx context.Context) error {
	rest := firstRest
	for {
		connected, err := b.serve(ctx)
		select {
		case <-ctx.Done():
			b.setLost(ctx, errors.New("stopped"))
			return nil
		default:
		}
		b.setLost(ctx, err)
		if connected {
			rest = firstRest
		}
		pause(ctx, rest)
		rest = min(2*rest, longestRest)
	}
}

// pause waits for about d, or for the end of ctx. The wait varies, so that many
// processes that lost the broker together do not come back together.
func pause(ctx context.Context, d time.Duration) {
	loop.Sleep(ctx, time.Duration(float64(d)*(0.75+0.5*rand.Float64())))
}

// serve connects and returns on failure, loss or the end of ctx.
func (b *Broker) serve(ctx context.Context) (connected bool, err error) {
	s, err := b.dial(ctx)
	if err != nil {
		return false, err
	}
	defer s.end()
	for {
		if err := s.declareShared(ctx); err != nil {
			return false, err
		}
		b.setSession(ctx, s)
		select {
		case <-ctx.Done():
			s.quiesce()
			return true, nil
		case <-s.gone:
			return true, s.lostError()
		case <-s.again: // something of it is missing, or refused
		}
	}
}

// setSession makes s the one to use.
func (b *Broker) setSession(ctx context.Context, s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != s {
		b.log.InfoContext(ctx, "connected to the message broker", "name", b.o.Name)
	}
	b.session, b.lost = s, nil
	b.ready = b.faults[exchangeNoun(b.o.Exchange)] == nil
	b.announce()
}

// setLost records why there is no connection, and logs it when it is news.
func (b *Broker) setLost(ctx context.Context, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	news := b.session != nil || b.lost == nil || b.lost.Error() != err.Error()
	b.session, b.ready, b.lost = nil, false, err
	b.announce()
	if news && ctx.Err() == nil {
		b.log.WarnContext(ctx, "no connection to the message broker; trying again", "err", err)
	}
}

// announce wakes all who wait for a change; b.mu is held.
func (b *Broker) announce() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Ready reports whether messages can be published now.
func (b *Broker) Ready() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready
}

// Wait returns when the broker is ready, or with an error when ctx ends.
func (b *Broker) Wait(ctx context.Context) error {
	for {
		b.mu.Lock()
		ready, changed := b.ready, b.changed
		b.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), b.LastError())
		}
	}
}

// Tried returns after the first attempt to connect, or when ctx ends.
func (b *Broker) Tried(ctx context.Context) {
	for {
		b.mu.Lock()
		tried, changed := !errors.Is(b.lost, errNotTried), b.changed
		b.mu.Unlock()
		if tried {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// LastError returns the current problem and its fix, or nil.
func (b *Broker) LastError() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []error
	if b.lost != nil {
		all = append(all, fmt.Errorf("no connection to the message broker: %w", b.lost))
	}
	if b.session != nil {
		if reason := b.session.blocked.Load(); reason != nil {
			all = append(all, blockedError(*reason))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.faults)) {
		all = append(all, b.faults[name])
	}
	return errors.Join(all...)
}

// note records and logs that the broker refuses a thing, or no longer if err is nil.
func (b *Broker) note(ctx context.Context, thing string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.faults[thing]
	switch {
	case err == nil && was != nil:
		delete(b.faults, thing)
		b.log.InfoContext(ctx, "the message broker accepts it again", "what", thing)
	case err != nil && (was == nil || was.Error() != err.Error()):
		b.faults[thing] = err
		b.log.ErrorContext(ctx, "the message broker refuses", "what", thing, "err", err)
	}
}

// fault returns what note recorded.
func (b *Broker) fault(thing string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.faults[thing]
}

// current returns the session, or a tasker.Unavailable error.
func (b *Broker) current() (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session == nil {
		return nil, tasker.Errorf(tasker.Unavailable, "no connection to the message broker: %w", b.lost)
	}
	return b.session, nil
}

// next waits for a usable session; nil when ctx ends first.
func (b *Broker) next(ctx context.Context) *session {
	for {
		b.mu.Lock()
		s, changed := b.session, b.changed
		b.mu.Unlock()
		if s != nil && s.alive() {
			return s
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}
