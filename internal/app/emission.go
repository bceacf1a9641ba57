package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/metrics"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/sink"
)

// newRelay prepares for the sinks that the configuration names. A sink that is
// away keeps no server from starting.
func newRelay(o Options, db *postgres.DB, counts emission.Counts) (r *emission.Relay, err error) {
	e := o.Config.Emission
	var sinks []sink.Sink
	defer func() {
		if err == nil {
			return
		}
		for _, s := range sinks {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, name := range e.SinkNames() {
		s, err := newSink(name, o.Config, o.Version, o.Log)
		if err != nil {
			return nil, fmt.Errorf("sink %s: %w", name, err)
		}
		sinks = append(sinks, s)
	}
	topics, err := e.TopicRetries()
	if err != nil {
		return nil, err
	}
	own := make(map[string]emission.Retry, len(topics))
	for topic, r := range topics {
		own[topic] = emission.Retry(r)
	}
	return emission.New(emission.Options{
		DB: db, Sinks: sinks, Retry: emission.Retry(e.Retry()), Topics: own, StoreTimeout: e.StoreTimeout(), EmitTimeout: e.Webhook.Timeout(),
		PerSecond: e.MaxPerSecond, Refusals: e.MaxRefusals, Concurrency: e.Webhook.Concurrency, Counts: counts, Log: o.Log,
	}), nil
}

func newSink(name string, c config.Config, version string, log *slog.Logger) (sink.Sink, error) {
	e := c.Emission
	switch name {
	case config.WebhookSink:
		return sink.NewWebhook(sink.WebhookOptions{
			URL: e.Webhook.URL, Secret: e.Webhook.Secret, Timeout: e.Webhook.Timeout(), AllowPrivate: e.Webhook.AllowPrivate,
			Source: e.Source, Version: version,
		})
	case config.RabbitSink:
		return sink.NewRabbit(sink.RabbitOptions{URL: c.BusURL(), Exchange: e.RabbitMQ.Exchange, Source: e.Source, Log: log})
	default:
		return sink.NewLog(log), nil
	}
}

// sinkCount is how many events of a sink are counted.
const sinkCount = 100_000

// sinkSource is where the metrics of the sinks of this server are read.
func sinkSource(o Options, db *postgres.DB) metrics.SinkSource {
	names := o.Config.Emission.SinkNames()
	return metrics.SinkSource{Sinks: names, Read: func(ctx context.Context) ([]tasker.SinkState, error) {
		return db.SinkStates(ctx, names, sinkCount)
	}}
}
