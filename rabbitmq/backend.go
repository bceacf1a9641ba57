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

// Server is a backend that can claim steps by id, such as the Backend of package client. The
// engine of package embedded is none, because its workers claim steps from it directly.
type Server interface {
	worker.Backend
	worker.Documents
	TakeSteps(ctx context.Context, id tasker.ID, steps []tasker.StepRef) ([]tasker.Assignment, error)
	// ReportReady is like Report, but claims only steps that the outcomes make ready.
	ReportReady(ctx context.Context, id tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error)
}

// Options configures a [Backend]. URL is required.
type Options struct {
	URL string       // amqp://user:password@host:5672/vhost, or amqps
	Log *slog.Logger // default: discard
}

// Backend is a [Server] that receives step announcements from RabbitMQ. It serves one worker and
// is connected while the worker is registered.
type Backend struct {
	Server

	options Options
	log     *slog.Logger

	silentUntil    atomic.Int64 // until when the broker is considered silent, in Unix ns
	lastPoll       atomic.Int64 // last poll of the server, in Unix ns
	lastDrainCheck atomic.Int64 // last check whether the worker drains, in Unix ns

	mu       sync.Mutex
	consumer *consumer // nil unless registered
}

// Package worker finds these methods by a type assertion.
var _ worker.Documents = (*Backend)(nil)

// NewBackend returns a backend. The URL is checked when the worker registers.
func NewBackend(s Server, o Options) *Backend {
	return &Backend{Server: s, options: o, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler))}
}

// RegisterWorker registers a worker and connects to the broker if the server announces steps there.
func (b *Backend) RegisterWorker(ctx context.Context, w tasker.WorkerSpec) (tasker.Registration, error) {
	r, err := b.Server.RegisterWorker(ctx, w)
	if err != nil {
		return r, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.consumer != nil {
		r.ClaimIsHeartbeat = false
		return r, nil // a repeated registration
	}
	if r.Dispatch == nil {
		b.log.WarnContext(ctx, "the server does not announce steps through a message broker; the worker polls for work")
		return r, nil
	}
	r.ClaimIsHeartbeat = false // most claims use only the broker
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

func (b *Backend) currentConsumer() *consumer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.consumer
}

const (
	takeDeadline = 20 * time.Second

	// pollInterval is the wait of one claim while the broker is unavailable. It exceeds the second
	// after which the server responds to a draining worker, so that an early response is noticed.
	pollInterval = 3 * time.Second

	pollAfter          = 5 * time.Second // between polls for unannounced steps
	silentPollInterval = 250 * time.Millisecond
	drainCheckInterval = time.Second     // between checks whether the worker drains
	drainDeadline      = 2 * time.Second // per check
	silenceDuration    = 10 * time.Second
	unavailablePause   = 250 * time.Millisecond
	maxTakenSteps      = 1000
)

// Claim claims up to limit announced steps. It waits up to wait for the first one, or less if the
// worker drains. It also polls the server periodically, which returns the oldest steps first, so
// that no step starves because of a lost message. While the broker is silent or unavailable, it
// only polls.
func (b *Backend) Claim(ctx context.Context, id tasker.ID, limit int, wait time.Duration) ([]tasker.Assignment, error) {
	l := b.currentConsumer()
	if l == nil {
		return b.Server.Claim(ctx, id, limit, wait)
	}
	deadline := time.Now().Add(wait)
	for {
		steps, drains, err := b.claimAnnounced(ctx, l, id, limit, deadline)
		if err != nil || len(steps) > 0 || drains || time.Until(deadline) <= 0 {
			return steps, err
		}
	}
}

// claimAnnounced is one iteration of Claim. It reports whether the worker seems to drain.
func (b *Backend) claimAnnounced(ctx context.Context, l *consumer, id tasker.ID, limit int, deadline time.Time) (steps []tasker.Assignment, drains bool, err error) {
	if !l.broker.Ready() {
		began, wait := time.Now(), min(max(time.Until(deadline), 0), pollInterval)
		steps, err = b.Server.Claim(ctx, id, limit, wait)
		return steps, time.Since(began) < wait/2, err
	}
	listen := pollAfter
	if b.brokerMissedSteps() {
		listen = silentPollInterval
	}
	if b.brokerMissedSteps() || time.Since(time.Unix(0, b.lastPoll.Load())) > pollAfter {
		if steps, err = b.poll(ctx, id, limit); err != nil || len(steps) > 0 {
			return steps, false, err
		}
	}
	messages := l.receiveBatch(ctx, min(limit, maxTakenSteps), min(time.Until(deadline), listen))
	if ctx.Err() != nil {
		l.requeue(messages)
		return nil, false, ctx.Err()
	}
	steps, err = b.claimAnnouncedOrPoll(ctx, id, messages, limit)
	if err == nil && len(steps) == 0 && len(messages) > 0 {
		drains = b.isDraining(ctx, l, id)
	}
	return steps, drains, err
}

// isDraining reports whether the worker drains and disconnects it from the broker if so. It is called
// when the server returned none of the announced steps, because they would be redelivered to a
// draining worker endlessly. It checks at most once per second.
func (b *Backend) isDraining(ctx context.Context, l *consumer, id tasker.ID) bool {
	if time.Since(time.Unix(0, b.lastDrainCheck.Load())) < drainCheckInterval {
		return false
	}
	b.lastDrainCheck.Store(time.Now().UnixNano())
	ctx, cancel := context.WithTimeout(ctx, drainDeadline)
	defer cancel()
	beat, err := b.Heartbeat(ctx, id, nil)
	if err != nil || !beat.Drain { // the next heartbeat of the worker retries
		return false
	}
	l.close()
	return true
}

// brokerMissedSteps reports whether the server recently had steps that the broker did not announce.
func (b *Backend) brokerMissedSteps() bool { return time.Now().UnixNano() < b.silentUntil.Load() }

// claimAnnouncedOrPoll claims the announced steps. If there are no messages, it polls the server,
// and considers the broker silent if the server has steps.
func (b *Backend) claimAnnouncedOrPoll(ctx context.Context, id tasker.ID, messages []amqp.Delivery, limit int) ([]tasker.Assignment, error) {
	if len(messages) > 0 {
		b.silentUntil.Store(0)
		return b.takeSteps(ctx, id, messages)
	}
	list, err := b.poll(ctx, id, limit)
	if len(list) > 0 {
		b.silentUntil.Store(time.Now().Add(silenceDuration).UnixNano())
	}
	return list, err
}

// poll claims any available steps from the server without waiting.
func (b *Backend) poll(ctx context.Context, id tasker.ID, limit int) ([]tasker.Assignment, error) {
	b.lastPoll.Store(time.Now().UnixNano())
	return b.Server.Claim(ctx, id, limit, 0)
}

// takeSteps claims the announced steps. It acknowledges a message when its step is claimed or no
// longer available: from then on the lease in the database counts.
func (b *Backend) takeSteps(ctx context.Context, id tasker.ID, messages []amqp.Delivery) ([]tasker.Assignment, error) {
	steps, known := b.parseMessages(ctx, messages)
	if len(steps) == 0 {
		return nil, nil
	}
	taking, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeDeadline)
	defer cancel()
	list, err := b.TakeSteps(taking, id, steps)
	for _, d := range known {
		if err != nil {
			_ = d.Nack(true) // redelivered in any case
		} else {
			_ = d.Ack()
		}
	}
	if err != nil {
		loop.Sleep(ctx, unavailablePause) // the redelivery is immediate
	}
	return list, err
}

// parseMessages returns the announced steps and their messages. It rejects other messages, so that the
// broker dead-letters them.
func (b *Backend) parseMessages(ctx context.Context, messages []amqp.Delivery) ([]tasker.StepRef, []amqp.Delivery) {
	var steps []tasker.StepRef
	var known []amqp.Delivery
	for _, d := range messages {
		var body Body
		if d.Type != MessageType || json.Unmarshal(d.Body, &body) != nil || body == (Body{}) {
			b.log.WarnContext(ctx, "rejected a message without a step", "queue", d.Queue, "message_id", d.ID)
			_ = d.Nack(false)
			continue
		}
		steps = append(steps, tasker.StepRef(body))
		known = append(known, d)
	}
	return steps, known
}

// Report reports outcomes and claims steps that they make ready. The broker announces all other
// steps.
func (b *Backend) Report(ctx context.Context, id tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error) {
	if b.currentConsumer() == nil {
		return b.Server.Report(ctx, id, outcomes, claim)
	}
	return b.ReportReady(ctx, id, outcomes, claim)
}

// DrainWorker drains the worker and disconnects from the broker.
func (b *Backend) DrainWorker(ctx context.Context, id tasker.ID) error {
	return closeDuring(b.currentConsumer(), func() error { return b.Server.DrainWorker(ctx, id) })
}

// closeDuring closes the broker connection while the request to the server runs, because both may
// be slow.
func closeDuring(l *consumer, tell func() error) error {
	var hanging sync.WaitGroup
	if l != nil {
		hanging.Go(l.close)
	}
	err := tell()
	hanging.Wait()
	return err
}

// LeaveWorker unregisters the worker and disconnects from the broker.
func (b *Backend) LeaveWorker(ctx context.Context, id tasker.ID) error {
	b.mu.Lock()
	l := b.consumer
	b.consumer = nil
	b.mu.Unlock()
	return closeDuring(l, func() error { return b.Server.LeaveWorker(ctx, id) })
}
