package sink

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/amqp"
)

// RabbitOptions configures a RabbitMQ sink. All fields but URL are optional.
type RabbitOptions struct {
	URL      string // amqp://user:password@host:port/vhost, or amqps
	Exchange string // default tasker.events
	Source   string // source of the events; default tasker
	Log      *slog.Logger
}

// rabbitSink publishes events to a topic exchange.
type rabbitSink struct {
	source string
	broker *amqp.Broker
	stop   context.CancelFunc
	run    sync.WaitGroup
}

// NewRabbit returns a sink that publishes each event as CloudEvents JSON to a durable topic
// exchange, with the topic as routing key. It declares the exchange. An event is confirmed when at
// least one queue is bound for it and all bound queues have stored it. The sink keeps a connection
// until Close.
func NewRabbit(o RabbitOptions) (Sink, error) {
	broker, err := amqp.New(amqp.Options{
		URL: o.URL, Name: "tasker events", Exchange: cmp.Or(o.Exchange, "tasker.events"), Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &rabbitSink{source: o.Source, broker: broker, stop: stop}
	s.run.Go(func() { _ = broker.Run(ctx) }) // always returns nil
	return s, nil
}

// Name returns "rabbitmq".
func (*rabbitSink) Name() string { return "rabbitmq" }

// Close closes the connection.
func (s *rabbitSink) Close() error {
	s.stop()
	s.run.Wait()
	return nil
}

// Emit publishes the event.
func (s *rabbitSink) Emit(ctx context.Context, e tasker.Event) error {
	return s.EmitAll(ctx, []tasker.Event{e})[0]
}

// EmitAll publishes the events without waiting for each confirmation.
func (s *rabbitSink) EmitAll(ctx context.Context, events []tasker.Event) []error {
	errs := make([]error, len(events))
	messages := make([]amqp.Routed, 0, len(events))
	indexes := make([]int, 0, len(events))
	for i, e := range events {
		body, err := CloudEvent(e, s.source)
		if err != nil {
			errs[i] = err
			continue
		}
		indexes = append(indexes, i)
		messages = append(messages, amqp.Routed{
			ID: e.UUID.String(), Key: e.Topic, Type: eventType(e), ContentType: mediaType, Body: body,
		})
	}
	s.broker.WaitForAttempt(ctx) // wait for the first connection
	for i, err := range s.broker.PublishRouted(ctx, messages) {
		errs[indexes[i]] = classifyError(err)
	}
	return errs
}

// classifyError marks an error as specific to the event if every broker would return it.
func classifyError(err error) error {
	switch tasker.CodeOf(err) {
	case tasker.Invalid, tasker.TooLarge:
		return newRefusedError(err)
	default:
		return err
	}
}
