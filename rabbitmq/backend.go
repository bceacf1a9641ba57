package rabbitmq

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/amqp"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/worker"
)

// A Server is a backend that lets a worker claim steps by their ids: the Backend of package
// client. Package embedded has none: its workers ask the engine in their own program.
type Server interface {
	worker.Backend
	worker.Documents
	TakeSteps(ctx context.Context, id tasker.ID, steps []tasker.StepRef) ([]tasker.Assignment, error)
	// ReportReady is Report, but takes only steps that become ready by the outcomes.
	ReportReady(ctx context.Context, id tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error)
}

// Options of a backend. The URL must be given.
type Options struct {
	URL string       // amqp://user:password@host:5672/vhost, or amqps
	Log *slog.Logger // nothing is logged by default
}

// A Backend is a [Server] whose steps are announced by RabbitMQ. It is for one
// worker, and is connected from its registration until it leaves.
type Backend struct {
	Server

	options Options
	log     *slog.Logger

	silentUntil atomic.Int64 // until when the broker counts as silent, in Unix ns
	asked       atomic.Int64 // when the server was asked last for steps, in Unix ns
	askedDrains atomic.Int64 // the same for whether the worker drains

	mu       sync.Mutex
	consumer *consumer // nil before the first registration and after leaving
}

// The SDK finds these by a type assertion.
var _ worker.Documents = (*Backend)(nil)

// NewBackend returns a backend. The URL is looked at when the worker registers.
func NewBackend(s Server, o Options) *Backend {
	return &Backend{Server: s, options: o, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler))}
}

// RegisterWorker makes a worker known to the server, and begins to listen to the
// broker if the server announces steps there.
func (b *Backend) RegisterWorker(ctx context.Context, w tasker.WorkerSpec) (tasker.Registration, error) {
	r, err := b.Server.RegisterWorker(ctx, w)
	if err != nil {
		return r, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.consumer != nil {
		r.ClaimIsHeartbeat = false
		return r, nil // it was forgotten, and has come back
	}
	if r.Dispatch == nil {
		b.log.WarnContext(ctx, "the server announces no steps through a message broker; the worker asks for work itself")
		return r, nil
	}
	r.ClaimIsHeartbeat = false // most claims ask the broker only
	b.consumer, err = b.connect(w, *r.Dispatch)
	if err != nil {
		_ = b.Server.LeaveWorker(ctx, r.WorkerUUID)
	}
	return r, err
}

func (b *Backend) connect(w tasker.WorkerSpec, d tasker.Dispatch) (*consumer, error) {
	broker, err := amqp.New(amqp.Options{
		URL: b.options.URL, Name: w.Name, Exchange: d.Exchange, QueueTTL: d.QueueTTL, Log: b.log,
		DeadLetter: amqp.DeadLetter{Enabled: d.DeadLetter, Exchange: d.DeadLetterExchange, TTL: d.DeadLetterTTL},
	})
	if err != nil {
		return nil, err
	}
	return newConsumer(broker, w.Namespaces, max(w.MaxConcurrency, 1)), nil
}

func (b *Backend) current() *consumer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.consumer
}

const (
	takeDeadline = 20 * time.Second

	// askWithout is how long one claim waits while the broker is away. The server answers those of a
	// worker that drains after a second, which has to be early.
	askWithout = 3 * time.Second

	askAfter      = 5 * time.Second // between two questions for what was not announced
	askSilent     = 250 * time.Millisecond
	askDrains     = time.Second     // between two questions whether the worker drains
	drainDeadline = 2 * time.Second // of one
	silence       = 10 * time.Second
	unavailRest   = 250 * time.Millisecond
	maxTakenSteps = 1000
)

// Claim takes steps that the broker announced, up to limit, and waits for the
// first of them up to wait. Now and then it asks the server whether there are others
// all the same: the server gives the oldest first, so none starves for want of a
// message. While messages do not come, or the broker is away, it asks in their place.
// For a worker that drains it returns early.
func (b *Backend) Claim(ctx context.Context, id tasker.ID, limit int, wait time.Duration) ([]tasker.Assignment, error) {
	l := b.current()
	if l == nil {
		return b.Server.Claim(ctx, id, limit, wait)
	}
	deadline := time.Now().Add(wait)
	for {
		steps, drains, err := b.claimSome(ctx, l, id, limit, deadline)
		if err != nil || len(steps) > 0 || drains || time.Until(deadline) <= 0 {
			return steps, err
		}
	}
}

// claimSome is one look of a claim. It reports whether the worker seems to drain.
func (b *Backend) claimSome(ctx context.Context, l *consumer, id tasker.ID, limit int, deadline time.Time) (steps []tasker.Assignment, drains bool, err error) {
	if !l.broker.Ready() {
		began, wait := time.Now(), min(max(time.Until(deadline), 0), askWithout)
		steps, err = b.Server.Claim(ctx, id, limit, wait)
		return steps, time.Since(began) < wait/2, err
	}
	listen := askAfter
	if b.brokerMissedSteps() {
		listen = askSilent
	}
	if b.brokerMissedSteps() || time.Since(time.Unix(0, b.asked.Load())) > askAfter {
		if steps, err = b.poll(ctx, id, limit); err != nil || len(steps) > 0 {
			return steps, false, err
		}
	}
	messages := l.receiveBatch(ctx, min(limit, maxTakenSteps), min(time.Until(deadline), listen))
	if ctx.Err() != nil {
		l.giveBack(messages)
		return nil, false, ctx.Err()
	}
	steps, err = b.claimAnnouncedOrPoll(ctx, id, messages, limit)
	if err == nil && len(steps) == 0 && len(messages) > 0 {
		drains = b.drains(ctx, l, id)
	}
	return steps, drains, err
}

// drains asks the server, now and then, whether the worker drains, since it was given none of the
// steps that messages named: those of a worker that drains would be announced again and again. If so
// it hangs up.
func (b *Backend) drains(ctx context.Context, l *consumer, id tasker.ID) bool {
	if time.Since(time.Unix(0, b.askedDrains.Load())) < askDrains {
		return false
	}
	b.askedDrains.Store(time.Now().UnixNano())
	ctx, cancel := context.WithTimeout(ctx, drainDeadline)
	defer cancel()
	beat, err := b.Heartbeat(ctx, id, nil)
	if err != nil || !beat.Drain { // what fails is tried again by the worker's own heartbeat
		return false
	}
	l.close()
	return true
}

// brokerMissedSteps reports whether the server lately had steps of which the broker did not tell.
func (b *Backend) brokerMissedSteps() bool { return time.Now().UnixNano() < b.silentUntil.Load() }

// claimAnnouncedOrPoll claims the steps that messages name. If there are none it asks the
// server, and learns from its answer whether the broker tells of steps at all.
func (b *Backend) claimAnnouncedOrPoll(ctx context.Context, id tasker.ID, messages []amqp.Delivery, limit int) ([]tasker.Assignment, error) {
	if len(messages) > 0 {
		b.silentUntil.Store(0)
		return b.take(ctx, id, messages)
	}
	list, err := b.poll(ctx, id, limit)
	if len(list) > 0 {
		b.silentUntil.Store(time.Now().Add(silence).UnixNano())
	}
	return list, err
}

// poll takes what the server has now, announced or not.
func (b *Backend) poll(ctx context.Context, id tasker.ID, limit int) ([]tasker.Assignment, error) {
	b.asked.Store(time.Now().UnixNano())
	return b.Server.Claim(ctx, id, limit, 0)
}

// take claims the steps that messages name. A message is acknowledged when its
// step is claimed, or turned out to be elsewhere: from then on the lease in the
// database is what counts.
func (b *Backend) take(ctx context.Context, id tasker.ID, messages []amqp.Delivery) ([]tasker.Assignment, error) {
	steps, known := b.read(ctx, messages)
	if len(steps) == 0 {
		return nil, nil
	}
	taking, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeDeadline)
	defer cancel()
	list, err := b.TakeSteps(taking, id, steps)
	for _, d := range known {
		if err != nil {
			_ = d.Nack(true) // or lost with its channel: it comes again either way
		} else {
			_ = d.Ack()
		}
	}
	if err != nil {
		loop.Sleep(ctx, unavailRest) // it is delivered again at once
	}
	return list, err
}

// read returns the steps that messages name, and those messages. Others are none
// of ours: they are refused, for the broker to put among the dead letters.
func (b *Backend) read(ctx context.Context, messages []amqp.Delivery) ([]tasker.StepRef, []amqp.Delivery) {
	var steps []tasker.StepRef
	var known []amqp.Delivery
	for _, d := range messages {
		var body Body
		if d.Type != MessageType || json.Unmarshal(d.Body, &body) != nil || body == (Body{}) {
			b.log.WarnContext(ctx, "a message that names no step is refused", "queue", d.Queue, "message_id", d.ID)
			_ = d.Nack(false)
			continue
		}
		steps = append(steps, tasker.StepRef(body))
		known = append(known, d)
	}
	return steps, known
}

// Report delivers outcomes, and takes steps that become ready by them. Of all others the broker tells.
func (b *Backend) Report(ctx context.Context, id tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error) {
	if b.current() == nil {
		return b.Server.Report(ctx, id, outcomes, claim)
	}
	return b.ReportReady(ctx, id, outcomes, claim)
}

// DrainWorker tells the server that the worker takes no more, and the broker.
func (b *Backend) DrainWorker(ctx context.Context, id tasker.ID) error {
	return closeDuring(b.current(), func() error { return b.Server.DrainWorker(ctx, id) })
}

// closeDuring ends a connection to the broker, if there is one, while the server is told: messages
// under way may keep the one waiting, and the server may be slow.
func closeDuring(l *consumer, tell func() error) error {
	var hanging sync.WaitGroup
	if l != nil {
		hanging.Go(l.close)
	}
	err := tell()
	hanging.Wait()
	return err
}

// LeaveWorker ends the worker's registration and its connection to the broker.
func (b *Backend) LeaveWorker(ctx context.Context, id tasker.ID) error {
	b.mu.Lock()
	l := b.consumer
	b.consumer = nil
	b.mu.Unlock()
	return closeDuring(l, func() error { return b.Server.LeaveWorker(ctx, id) })
}
