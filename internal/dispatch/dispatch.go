// Package dispatch announces enqueued steps to workers through a message broker and processes the
// messages that no worker consumed. The database remains the source of truth.
//
// A step is announced after the transaction that enqueued it, from an outbox that this transaction
// wrote. A message contains ids only; a worker that receives one claims the step. Reconciliation finds
// lost messages, and a duplicate has no effect.
//
// A message that no worker consumes in time becomes a dead letter, so that the server notices at once.
// The limit itself is in the database: without the broker, the sweep finds the same steps.
package dispatch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/amqp"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/rabbitmq"
)

// Options configures a Service.
type Options struct {
	Broker      *amqp.Broker
	DB          *postgres.DB
	Engine      *engine.Engine
	DeadLetters bool          // process dead letters
	LostAfter   time.Duration // how long a step is enqueued before its announcement counts as lost; 15 s by default

	ReconcileEvery time.Duration // interval of the scan for lost announcements; 10 s by default

	Counts Counts // optional
	Log    *slog.Logger
}

// Service announces steps and processes dead letters.
type Service struct {
	Options
	wake chan struct{}
}

// New returns a service, which does nothing until Run is called.
func New(o Options) *Service {
	o.LostAfter = cmp.Or(o.LostAfter, 15*time.Second)
	o.ReconcileEvery = cmp.Or(o.ReconcileEvery, 10*time.Second)
	if o.Counts == nil {
		o.Counts = noCounts{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{Options: o, wake: make(chan struct{}, 1)}
}

// Wake signals that there are steps to announce. It does not block.
func (s *Service) Wake() {
	loop.Wake(s.wake)
}

// Run maintains the connection to the broker, announces steps and processes dead letters until ctx
// ends. It waits while the broker is unavailable.
func (s *Service) Run(ctx context.Context) error {
	// The connection must outlive its users.
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	defer disconnect()
	broker := loop.NewGroup(connected)
	broker.Go("connection to the broker", s.Broker.Run)

	g := loop.NewGroup(ctx)
	g.Go("announce steps", s.announce)
	if s.DeadLetters {
		g.Go("handle dead letters", s.handleDeadLetters)
		canary := loop.Loop{Name: "canary", Interval: canaryEvery, Timeout: announceDeadline, Pass: s.sendCanary, Log: s.Log}
		g.Go(canary.Name, canary.Run)
	}
	reconcile := loop.Loop{Name: "reconcile announcements", Interval: s.ReconcileEvery, Timeout: reconcileDeadline, Pass: s.reconcile, Log: s.Log}
	g.Go(reconcile.Name, reconcile.Run)
	err := g.Wait()
	disconnect()
	return cmp.Or(err, broker.Wait())
}

const (
	announceBatch = 500
	announceEvery = time.Second     // finds steps of other servers and due retries
	announceAgain = 5 * time.Second // delay before an unconfirmed announcement is repeated

	// announceDeadline is longer than the timeout of the broker client, whose error names the
	// queue. The transaction must not be idle for longer.
	announceDeadline = 2*amqp.Silence + 2*time.Second

	logInterval = time.Minute // between two equal log messages
)

func (s *Service) announce(ctx context.Context) error {
	timer := time.NewTicker(announceEvery)
	defer timer.Stop()
	var last errorThrottle
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-timer.C:
		}
		for ctx.Err() == nil && s.Broker.Ready() {
			n, err := s.announceBatch(ctx)
			if ctx.Err() == nil && last.isNews(n, err, time.Now()) {
				s.Log.WarnContext(ctx, "announcing steps failed; retrying", "err", err)
			}
			if n < announceBatch {
				break
			}
		}
	}
}

// errorThrottle is the last failure of announcements that was logged.
type errorThrottle struct {
	text string
	at   time.Time
	over bool // a batch has succeeded since
}

// isNews reports whether to log the result of a batch of n announcements. The same error is logged
// again after a success, but at most once a minute, because successes of other namespaces can
// alternate with failures of one.
func (c *errorThrottle) isNews(n int, err error, now time.Time) bool {
	if err == nil {
		c.over = c.over || n > 0
		return false
	}
	if err.Error() == c.text && (!c.over || now.Sub(c.at) < logInterval) {
		return false
	}
	*c = errorThrottle{text: err.Error(), at: now}
	return true
}

// announceBatch publishes a batch. If the broker accepts nothing, the outbox is unchanged.
// Otherwise unconfirmed announcements are delayed, so that other namespaces have their turn.
func (s *Service) announceBatch(ctx context.Context) (int, error) {
	var broken error
	n, err := s.DB.Announce(ctx, announceBatch, announceAgain, func(list []postgres.Announcement) ([]int64, error) {
		var done []int64
		done, broken = s.publish(ctx, list)
		if len(done) == 0 && broken != nil && s.Broker.CheckUsable() != nil {
			return nil, broken
		}
		return done, nil
	})
	return n, cmp.Or(err, broken)
}

func (s *Service) publish(ctx context.Context, list []postgres.Announcement) (done []int64, err error) {
	messages := make([]amqp.Message, len(list))
	for i, a := range list {
		body, err := json.Marshal(rabbitmq.Body{TaskUUID: a.TaskUUID, StepUUID: a.StepUUID})
		if err != nil {
			return nil, err
		}
		messages[i] = amqp.Message{ID: a.StepUUID.String(), Namespace: a.Namespace, Type: rabbitmq.MessageType, Body: body}
	}
	limited, cancel := context.WithTimeout(ctx, announceDeadline)
	defer cancel()
	confirmed, err := s.Broker.Publish(limited, messages)
	for i, ok := range confirmed {
		if ok {
			done = append(done, list[i].Position)
		}
	}
	s.Counts.Announced(ctx, len(done), len(list)-len(done))
	return done, err
}

const (
	reconcileDeadline = 30 * time.Second
	reconcileBatch    = 10_000
)

// reconcile announces steps again whose announcement was lost. Those are steps that have waited
// for a while and are not in the outbox, although the broker has no message for their namespace.
func (s *Service) reconcile(ctx context.Context) (time.Duration, error) {
	if !s.Broker.Ready() {
		return 0, nil
	}
	namespaces, err := s.DB.WaitingNamespaces(ctx)
	if err != nil {
		return 0, err
	}
	var failed []error
	for _, n := range namespaces {
		messages, _, err := s.Broker.Depth(ctx, amqp.QueueName(n))
		if err != nil && tasker.CodeOf(err) != tasker.NotFound {
			failed = append(failed, err)
			continue
		}
		if messages > 0 {
			continue
		}
		lost, err := s.DB.AnnounceLost(ctx, n, s.LostAfter, reconcileBatch)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if lost > 0 {
			s.Log.WarnContext(ctx, "announcements lost by the broker; announcing again", "namespace", n, "steps", lost)
			s.Counts.Reannounced(ctx, lost)
			s.Wake()
		}
	}
	return 0, errors.Join(failed...)
}
