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
	firstBackoff = 250 * time.Millisecond
	maxBackoff   = 10 * time.Second
)

// Options configures a Broker. All fields but URL are optional.
type Options struct {
	URL          string        // amqp://user:password@host:port/vhost, or amqps
	Name         string        // name of the connection at the broker
	Exchange     string        // default tasker.executions
	DeadLetter   DeadLetter    // handling of messages that expire
	QueueTTL     time.Duration // of messages in work queues; default 5 minutes
	DialTimeout  time.Duration // of one connection attempt, including the handshake; default 2 s
	Heartbeat    time.Duration // default 2 s; after three missing heartbeats the connection is closed
	DeliverLimit int           // redeliveries of a message in a work queue; default 20
	Log          *slog.Logger
}

// DeadLetter configures the handling of messages that expire in a work queue or exceed its delivery
// limit. If it is disabled, the broker drops them.
type DeadLetter struct {
	Enabled  bool
	Exchange string        // default tasker.dlx
	TTL      time.Duration // of messages in the dead-letter queue; default 24 hours
}

// Broker is a client of a RabbitMQ broker. It is safe for concurrent use.
type Broker struct {
	o     Options
	log   *slog.Logger
	vhost string

	mu      sync.Mutex
	session *session         // nil while disconnected
	changed chan struct{}    // closed and replaced when session or ready change
	ready   bool             // the session has the exchange
	lost    error            // why there is no session
	faults  map[string]error // refusals of the broker, by the noun of what it refuses
}

// errNotTried is the connection error before the first attempt.
var errNotTried = errors.New("not connected yet")

// New validates the options. It does not connect, see [Broker.Run].
func New(o Options) (*Broker, error) {
	uri, err := amqp091.ParseURI(o.URL)
	if err != nil {
		// err quotes the URL with its password.
		return nil, tasker.Errorf(tasker.Invalid, "invalid message broker URL: must be "+
			"amqp://user:password@host:port/vhost or amqps://…, with reserved characters in the password "+
			"percent-encoded")
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
	if len(o.Exchange) > maxName || len(o.DeadLetter.Exchange)+len(deadLetterSuffix) > maxName {
		return nil, tasker.Errorf(tasker.Invalid,
			"the name of a message broker exchange is longer than %d bytes", maxName)
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

// Run maintains the connection until ctx ends, and then returns nil. It connects, declares the
// exchanges and the dead-letter queue, and reconnects after a loss. At the end, it gives consumers
// time to settle their deliveries. It must not run twice at the same time.
func (b *Broker) Run(ctx context.Context) error {
	backoff := firstBackoff
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
			backoff = firstBackoff
		}
		sleep(ctx, backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

// sleep waits for about d, or until ctx ends. Jitter prevents many processes from reconnecting at
// the same time.
func sleep(ctx context.Context, d time.Duration) {
	loop.Sleep(ctx, time.Duration(float64(d)*(0.75+0.5*rand.Float64())))
}

// serve connects and returns on failure, loss or the end of ctx.
func (b *Broker) serve(ctx context.Context) (connected bool, err error) {
	s, err := b.dial(ctx)
	if err != nil {
		return false, err
	}
	defer s.close()
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
		case <-s.redeclare: // an exchange or a queue is missing or refused
		}
	}
}

func (b *Broker) setSession(ctx context.Context, s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != s {
		b.log.InfoContext(ctx, "connected to the message broker", "name", b.o.Name)
	}
	b.session, b.lost = s, nil
	b.ready = b.faults[describeExchange(b.o.Exchange)] == nil
	b.notifyWaiters()
}

// setLost records why there is no connection. It logs changes only.
func (b *Broker) setLost(ctx context.Context, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := b.session != nil || b.lost == nil || b.lost.Error() != err.Error()
	b.session, b.ready, b.lost = nil, false, err
	b.notifyWaiters()
	if changed && ctx.Err() == nil {
		b.log.WarnContext(ctx, "cannot connect to the message broker; retrying", "err", err)
	}
}

// notifyWaiters wakes all waiters. The caller must hold b.mu.
func (b *Broker) notifyWaiters() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Ready reports whether messages can be published now.
func (b *Broker) Ready() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready
}

// Wait blocks until the broker is ready. It returns an error if ctx ends first.
func (b *Broker) Wait(ctx context.Context) error {
	if !b.waitUntil(ctx, func() bool { return b.ready }) {
		return errors.Join(ctx.Err(), b.LastError())
	}
	return nil
}

// WaitForAttempt blocks until the first connection attempt has ended, or until ctx ends.
func (b *Broker) WaitForAttempt(ctx context.Context) {
	b.waitUntil(ctx, func() bool { return !errors.Is(b.lost, errNotTried) })
}

// waitUntil blocks until condition, which is called with b.mu held, is true. It returns false if
// ctx ends first.
func (b *Broker) waitUntil(ctx context.Context, condition func() bool) bool {
	for {
		b.mu.Lock()
		ok, changed := condition(), b.changed
		b.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
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
			all = append(all, newBlockedError(*reason))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.faults)) {
		all = append(all, b.faults[name])
	}
	return errors.Join(all...)
}

// recordError records and logs that the broker refuses a thing, or accepts it again if err is nil.
func (b *Broker) recordError(ctx context.Context, thing string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.faults[thing]
	switch {
	case err == nil && was != nil:
		delete(b.faults, thing)
		b.log.InfoContext(ctx, "the message broker accepts a declaration again", "what", thing)
	case err != nil && (was == nil || was.Error() != err.Error()):
		b.faults[thing] = err
		b.log.ErrorContext(ctx, "the message broker rejected a declaration", "what", thing, "err", err)
	}
}

// lastErrorOf returns the current refusal that note recorded for a thing, or nil.
func (b *Broker) lastErrorOf(thing string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.faults[thing]
}

// currentSession returns the session, or an Unavailable error.
func (b *Broker) currentSession() (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session == nil {
		return nil, tasker.Errorf(tasker.Unavailable, "no connection to the message broker: %w", b.lost)
	}
	return b.session, nil
}

// waitForSession waits for a usable session. It returns nil if ctx ends first.
func (b *Broker) waitForSession(ctx context.Context) (s *session) {
	if !b.waitUntil(ctx, func() bool { s = b.session; return s != nil && s.isAlive() }) {
		return nil
	}
	return s
}
