package app

import (
	"context"
	"time"

	"tasker"
	"tasker/internal/config"
	"tasker/internal/dispatch"
	"tasker/internal/engine"
	"tasker/internal/postgres"
	"tasker/internal/rabbit"
)

// A line is the way of steps to workers by way of a message broker; the zero line
// is that there is none.
type line struct {
	broker  *rabbit.Broker
	service *dispatch.Service
	config  config.RabbitMQ
}

// newLine prepares for the broker that the configuration names. It connects when
// it runs: a broker that is away keeps no server from starting.
func newLine(o Options) (*line, error) {
	l := &line{config: o.Config.MessageQueue.RabbitMQ}
	if o.Config.MessageQueue.Transport != "rabbitmq" {
		return l, nil
	}
	d := l.config.DeadLetter
	var err error
	l.broker, err = rabbit.New(rabbit.Options{
		URL: l.config.URL, Name: "tasker server", Exchange: l.config.Exchange, QueueTTL: l.config.WorkerQueueTTL(), Log: o.Log,
		DeadLetter: rabbit.DeadLetter{Enabled: d.Enabled, Exchange: d.Exchange, TTL: d.TTL()},
	})
	return l, err
}

// tell completes what the engine is told of the broker.
func (l *line) tell(o engine.Options) engine.Options {
	if l.broker == nil {
		return o
	}
	d := l.config.DeadLetter
	o.Dispatch = &tasker.Dispatch{
		Exchange: l.config.Exchange, QueueTTL: l.config.WorkerQueueTTL(),
		DeadLetter: d.Enabled, DeadLetterExchange: d.Exchange, DeadLetterTTL: d.TTL(),
	}
	o.QueueOf = rabbit.QueueOf
	o.Enqueued = func() { l.service.Wake() }
	o.SweepGrace = func() time.Duration {
		if !d.Enabled || !l.broker.Ready() {
			return 0 // nobody else tells of it
		}
		return l.config.SweepGrace()
	}
	return o
}

// begin makes the service once there is an engine, and before that is used.
func (l *line) begin(o Options, db *postgres.DB, e *engine.Engine) {
	if l.broker == nil {
		return
	}
	l.service = dispatch.New(dispatch.Options{Broker: l.broker, DB: db, Engine: e, DeadLetters: l.config.DeadLetter.Enabled, Log: o.Log})
}

// run announces steps until ctx ends.
func (l *line) run(ctx context.Context) error {
	if l.service == nil {
		<-ctx.Done()
		return nil
	}
	return l.service.Run(ctx)
}
