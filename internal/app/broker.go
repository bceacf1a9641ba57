package app

import (
	"context"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/amqp"
	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/dispatch"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/metrics"
	"tasker.example/tasker/internal/postgres"
)

// brokerLine connects the server to a message broker. If none is configured, its fields are nil.
type brokerLine struct {
	broker  *amqp.Broker
	service *dispatch.Service
	config  config.RabbitMQ
}

// newBrokerLine returns a line, which connects only when it runs, so that an unavailable broker
// does not prevent the start.
func newBrokerLine(o Options) (*brokerLine, error) {
	l := &brokerLine{config: o.Config.MessageQueue.RabbitMQ}
	if o.Config.MessageQueue.Transport != "rabbitmq" {
		return l, nil
	}
	d := l.config.DeadLetter
	var err error
	l.broker, err = amqp.New(amqp.Options{
		URL: l.config.URL, Name: "tasker server", Exchange: l.config.Exchange, QueueTTL: l.config.WorkerQueueTTL(), Log: o.Log,
		DeadLetter: amqp.DeadLetter{Enabled: d.Enabled, Exchange: d.Exchange, TTL: d.TTL()},
	})
	return l, err
}

// configure adds the options of the broker to those of the engine.
func (l *brokerLine) configure(o engine.Options) engine.Options {
	if l.broker == nil {
		return o
	}
	d := l.config.DeadLetter
	o.Broker.Dispatch = &tasker.Dispatch{
		Exchange: l.config.Exchange, QueueTTL: l.config.WorkerQueueTTL(),
		DeadLetter: d.Enabled, DeadLetterExchange: d.Exchange, DeadLetterTTL: d.TTL(),
		ClaimsReady: true,
	}
	o.Broker.QueueOf = amqp.QueueName
	o.Broker.Grace = func() time.Duration {
		if !d.Enabled || !l.broker.Ready() {
			return 0 // the broker reports no expired steps
		}
		return l.config.SweepGrace()
	}
	return o
}

// wake announces steps that were enqueued.
func (l *brokerLine) wake() {
	if l.service != nil {
		l.service.Wake()
	}
}

// attach creates the dispatch service. It must be called before the engine is used.
func (l *brokerLine) attach(o Options, db *postgres.DB, e *engine.Engine, counts dispatch.Counts) {
	if l.broker == nil {
		return
	}
	l.service = dispatch.New(dispatch.Options{
		Broker: l.broker, DB: db, Engine: e, DeadLetters: l.config.DeadLetter.Enabled, Counts: counts, Log: o.Log,
	})
}

// outboxCount is the maximum number of outbox rows that are counted.
const outboxCount = 10_000

// metricSources returns the sources of the broker metrics, or nil if no broker is configured.
func (l *brokerLine) metricSources(db *postgres.DB) *metrics.BrokerSources {
	if l.broker == nil {
		return nil
	}
	s := &metrics.BrokerSources{
		Outcomes: dispatch.Outcomes(), Up: l.broker.Ready,
		Outbox: func(ctx context.Context) (int64, time.Duration, error) { return db.Outbox(ctx, outboxCount) },
	}
	if l.config.DeadLetter.Enabled {
		s.Canary = db.FindCanaryReturn
		s.DeadLetters = func(ctx context.Context) (int64, error) {
			messages, _, err := l.broker.Depth(ctx, l.broker.DeadLetterQueue())
			return int64(messages), err
		}
	}
	return s
}

// healthCheck returns a function that reports the state of the broker, or nil if no broker is
// configured.
func (l *brokerLine) healthCheck() func() (up bool, problem error) {
	if l.broker == nil {
		return nil
	}
	return func() (bool, error) { return l.broker.Ready(), l.broker.LastError() }
}

// run announces steps until ctx ends. If no broker is configured, it only waits.
func (l *brokerLine) run(ctx context.Context) error {
	if l.service == nil {
		<-ctx.Done()
		return nil
	}
	return l.service.Run(ctx)
}
