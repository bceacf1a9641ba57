package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
	"tasker.example/tasker/bench/internal/figures"
	"tasker.example/tasker/internal/amqp"
	"tasker.example/tasker/internal/dispatch"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/rabbitmq"
	"tasker.example/tasker/worker"
)

const (
	overPostgres = "over PostgreSQL"
	overRabbitMQ = "over RabbitMQ"
)

// transports compares the two ways in which in-process workers learn of steps.
func (b *bench) transports(ctx context.Context) error {
	if b.BrokerURL == "" {
		b.report.Notes = append(b.report.Notes, "The group transports was left out: no message broker was named "+
			"(--amqp-url, or "+BrokerEnv+": amqp://user:password@host:5672/).")
		return nil
	}
	a, err := b.startAnnouncer(ctx)
	if err != nil {
		return err
	}
	asking, listening := b.direct(), a.path()
	asking.name = overPostgres
	for n := 0; n < b.Runs && err == nil; n++ {
		for _, p := range []path{asking, listening} {
			if err = b.transport(ctx, p, a); err != nil {
				err = fmt.Errorf("%s: %w", p.name, err)
				break
			}
		}
	}
	return errors.Join(err, a.stop())
}

// transport measures one way once.
func (b *bench) transport(ctx context.Context, p path, a *announcer) error {
	compared := func(name, unit string) figure {
		f := figure{name: name + ", " + p.name, unit: unit}
		if p.name != overPostgres {
			f.baseline = name + ", " + overPostgres
		}
		return f
	}
	if err := b.fillQueue(ctx, p, linear, b.Workflows); err != nil {
		return err
	}
	if err := a.settled(ctx); err != nil {
		return err
	}
	took, err := b.empty(ctx, p, linear.steps*b.Workflows)
	if err != nil {
		return err
	}
	rate := float64(b.Workflows) / took.Seconds()
	b.note(compared("linear-4 drained", "steps/s"), rate*float64(linear.steps))
	b.note(compared("linear-4 workflows drained", "workflows/s"), rate)
	if err := a.settled(ctx); err != nil {
		return err
	}
	alone, err := b.alone(ctx, p, linear)
	if err != nil {
		return err
	}
	for _, q := range []struct {
		name  string
		share float64
	}{{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}} {
		b.note(compared("linear-4 alone, "+q.name, "ms"), figures.Quantile(alone, q.share))
	}
	return nil
}

// An announcer is another engine on the same database that announces steps through a broker.
type announcer struct {
	*bench
	db     *postgres.DB
	engine *engine.Engine
	broker *amqp.Broker
	end    context.CancelFunc
	done   *loop.Group
}

// Objects on the broker, which are deleted at the end.
const (
	benchExchange    = "tasker.bench"
	benchDeadLetters = "tasker.bench.dlx"
)

func (b *bench) startAnnouncer(ctx context.Context) (*announcer, error) {
	d := tasker.Dispatch{
		Exchange: benchExchange, QueueTTL: postgres.DefaultQueueTTL,
		DeadLetter: true, DeadLetterExchange: benchDeadLetters, DeadLetterTTL: time.Hour,
		ClaimsReady: true,
	}
	broker, err := amqp.New(amqp.Options{
		URL: b.BrokerURL, Name: applicationName, Exchange: d.Exchange, QueueTTL: d.QueueTTL, Log: b.log,
		DeadLetter: amqp.DeadLetter{Enabled: d.DeadLetter, Exchange: d.DeadLetterExchange, TTL: d.DeadLetterTTL},
	})
	if err != nil {
		return nil, err
	}
	db, err := postgres.Open(ctx, b.DatabaseURL, postgres.Options{StatementTimeout: time.Minute, ApplicationName: applicationName, Announce: true})
	if err != nil {
		return nil, err
	}
	a := &announcer{bench: b, db: db, broker: broker}
	var service *dispatch.Service
	a.engine = engine.New(db, engine.Options{Log: b.log, Broker: engine.BrokerOptions{Dispatch: &d, QueueOf: amqp.QueueName}, Hooks: &announcerHooks{service: &service}})
	service = dispatch.New(dispatch.Options{Broker: broker, DB: db, Engine: a.engine, DeadLetters: true, Log: b.log})
	running, end := context.WithCancel(ctx)
	a.end, a.done = end, loop.NewGroup(running)
	a.done.Go("announce", service.Run)
	waiting, cancel := context.WithTimeout(ctx, brokerPatience)
	defer cancel()
	if err := broker.Wait(waiting); err != nil {
		return nil, errors.Join(fmt.Errorf("reach the message broker: %w", err), a.stop())
	}
	return a, nil
}

const brokerPatience = 30 * time.Second

func (a *announcer) path() path {
	return path{
		name: overRabbitMQ,
		own: func() worker.Backend {
			return rabbitmq.NewBackend(a.engine, rabbitmq.Options{URL: a.BrokerURL, Log: a.log})
		},
		create: createIn(a.engine),
	}
}

// settled waits until everything is announced.
func (a *announcer) settled(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, brokerPatience)
	defer cancel()
	for {
		var open bool
		err := a.db.Pool().QueryRow(limited, `SELECT EXISTS (SELECT FROM tasker.dispatch_outbox)`).Scan(&open)
		if err != nil || !open {
			return err
		}
		if err := rest(limited, 10*time.Millisecond); err != nil {
			return errors.New("the broker does not confirm all that is announced")
		}
	}
}

// stop stops the announcer and deletes its objects on the broker.
func (a *announcer) stop() error {
	a.end()
	err := a.done.Wait()
	a.db.Close()
	return errors.Join(err, a.clean())
}

func (a *announcer) clean() error {
	conn, err := amqp091.DialConfig(a.BrokerURL, amqp091.Config{Dial: amqp091.DefaultDial(brokerPatience)})
	if err != nil {
		return fmt.Errorf("delete what the bench has declared on the broker: %w", err)
	}
	ch, err := conn.Channel()
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	for _, queue := range []string{amqp.QueueName(space), a.broker.DeadLetterQueue(), amqp.QueueName("~" + a.broker.DeadLetterQueue())} {
		if _, derr := ch.QueueDelete(queue, false, false, false); derr != nil {
			err = errors.Join(err, derr)
		}
	}
	for _, exchange := range []string{benchExchange, benchDeadLetters} {
		err = errors.Join(err, ch.ExchangeDelete(exchange, false, false))
	}
	return errors.Join(err, conn.Close())
}

// announcerHooks wakes the service that announces steps.
type announcerHooks struct {
	engine.NoHooks
	service **dispatch.Service
}

func (a *announcerHooks) StepsEnqueued() { (*a.service).Wake() }
