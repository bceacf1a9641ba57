// Package dispatch announces enqueued steps to workers through a message broker and processes the
// messages that no worker consumed. The database remains the source of truth.
//
// The database decides, always. A step is announced after the transaction that
// enqueued it, from an outbox that this transaction wrote: what does not exist is
// not announced, and what exists is. A message carries ids and nothing else;
// whoever receives one claims the step, or finds it taken. A message that is lost
// is found by reconciliation, one that comes twice by the claim.
//
// A message that no worker took in time becomes a dead letter, which is how the
// server learns of it at once. The limit itself is in the database: with
// the broker gone, the sweep finds the same steps.
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

// Options of a service.
type Options struct {
	Broker      *amqp.Broker
	DB          *postgres.DB
	Engine      *engine.Engine
	DeadLetters bool          // whether to handle them
	LostAfter   time.Duration // how long a step has been enqueued before its announcement may count as lost; 0 means 15 s

	ReconcileEvery time.Duration // how often lost announcements are looked for; 0 means 10 s

	Counts Counts // nil means that nothing is counted
	Log    *slog.Logger
}

// Service announces steps and handles dead letters.
type Service struct {
	Options
	wake chan struct{}
}

// New returns a service that does nothing before Run.
func New(o Options) *Service {
	o.LostAfter = cmp.Or(o.LostAfter, 15*time.Second)
	o.ReconcileEvery = cmp.Or(o.ReconcileEvery, 10*time.Second)
	if o.Counts == nil {
		o.Counts = uncounted{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{Options: o, wake: make(chan struct{}, 1)}
}

// Wake says that there is something to announce. It does not wait.
func (s *Service) Wake() {
	loop.Wake(s.wake)
}

// Run keeps the connection to the broker, announces and handles dead letters until
// ctx ends. A broker that is away is waited for.
func (s *Service) Run(ctx context.Context) error {
	// The broker ends after those who use it.
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	defer disconnect()
	broker := loop.NewGroup(connected)
	broker.Go("connection to the broker", s.Broker.Run)

	g := loop.NewGroup(ctx)
	g.Go("announce steps", s.announce)
	if s.DeadLetters {
		g.Go("handle dead letters", s.handleDeadLetters)
		canary := loop.Loop{Name: "canary", Interval: canaryEvery, Timeout: announceDeadline, Pass: s.canary, Log: s.Log}
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
	announceEvery = time.Second     // what other servers enqueued, and what is due again
	announceAgain = 5 * time.Second // rest of an announcement that the broker did not confirm

	// announceDeadline lets the broker's own timer end first, which knows the queue that
	// confirms nothing. The transaction around it may not pause for longer.
	announceDeadline = 2*amqp.Silence + 2*time.Second

	logInterval = time.Minute // between two lines of the log that say the same
)

// announce publishes what is in the outbox.
func (s *Service) announce(ctx context.Context) error {
	timer := time.NewTicker(announceEvery)
	defer timer.Stop()
	var said complaint
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-timer.C:
		}
		for ctx.Err() == nil && s.Broker.Ready() {
			n, err := s.announceSome(ctx)
			if ctx.Err() == nil && said.isNews(n, err, time.Now()) {
				s.Log.WarnContext(ctx, "steps could not be announced; trying again", "err", err)
			}
			if n < announceBatch {
				break
			}
		}
	}
}

// A complaint is what the log last said of announcements that failed.
type complaint struct {
	text string
	at   time.Time
	over bool // a batch has been announced since
}

// isNews reports whether to log what came of a batch of n announcements. The same reason is
// news again after a success, but not more than once a minute: successes of other
// namespaces come between the failures of one.
func (c *complaint) isNews(n int, err error, now time.Time) bool {
	if err == nil {
		c.over = c.over || n > 0
		return false
	}
	if err.Error() == c.text && (!c.over || now.Sub(c.at) < logInterval) {
		return false
	}
	*c = complaint{text: err.Error(), at: now}
	return true
}

// announceSome publishes a batch. When the broker itself is the reason that it takes nothing, the
// outbox stays as it is. Otherwise what is not confirmed rests, so that the announcements of other
// namespaces have their turn.
func (s *Service) announceSome(ctx context.Context) (int, error) {
	var broken error
	n, err := s.DB.Announce(ctx, announceBatch, announceAgain, func(list []postgres.Announcement) ([]int64, error) {
		var done []int64
		done, broken = s.publish(ctx, list)
		if len(done) == 0 && broken != nil && s.Broker.Unusable() != nil {
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

// reconcile finds steps whose announcement was lost: the broker holds no message for
// a namespace, and still steps of it have waited for a while that are not about to
// be announced. They are announced again.
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
		messages, _, err := s.Broker.Depth(ctx, amqp.QueueOf(n))
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
			s.Log.WarnContext(ctx, "steps wait and the broker has no message for them; they are announced again", "namespace", n, "steps", lost)
			s.Counts.Reannounced(ctx, lost)
			s.Wake()
		}
	}
	return 0, errors.Join(failed...)
}
