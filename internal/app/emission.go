package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/metrics"
	"tasker.example/tasker/internal/notice"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/sink"
)

// newRelay returns a relay to the configured sinks. An unavailable sink does not prevent the start.
func newRelay(o Options, db *postgres.DB, counts emission.Counts) (r *emission.Relay, err error) {
	e := o.Config.Emission
	var sinks, named []sink.Sink
	defer func() {
		if err == nil {
			return
		}
		for _, s := range slices.Concat(sinks, named) {
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
	for _, name := range e.ReceiverNames() {
		s, err := newReceiver(name, o.Config, o.Version)
		if err != nil {
			return nil, fmt.Errorf("receiver %s: %w", name, err)
		}
		named = append(named, s)
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
		DB: db, Sinks: sinks, Named: named, Retry: emission.Retry(e.Retry()), Topics: own, StoreTimeout: e.StoreTimeout(), EmitTimeout: e.Webhook.Timeout(),
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
		return sink.NewLog(log, e.Source), nil
	}
}

// sinkCount is the number of events at which counting the backlog of a sink stops.
const sinkCount = 100_000

// newSinkSource returns the source of the sink metrics.
func newSinkSource(o Options, db *postgres.DB) metrics.SinkSource {
	names := slices.Concat(o.Config.Emission.SinkNames(), o.Config.Emission.ReceiverNames())
	return metrics.SinkSource{Sinks: names, Read: func(ctx context.Context) ([]tasker.SinkState, error) {
		return db.SinkStates(ctx, names, sinkCount)
	}}
}

// buildRoutes returns the configured routes for notifications. The log receives notifications that
// no route matches, if it is a sink.
func buildRoutes(e config.Emission) (notice.Routes, error) {
	list, err := e.RouteList()
	out := notice.Routes{List: list, Takes: map[string][]string{}}
	for name, r := range e.Receivers {
		if out.Takes[name] = r.TopicList(); len(out.Takes[name]) == 0 {
			out.Takes[name] = sink.Format(r.Form).DefaultTopics()
		}
	}
	if slices.Contains(e.SinkNames(), config.LogSink) {
		out.Default = []string{config.LogSink}
	}
	return out, err
}

// newReceiver returns the sink for the configured receiver of notifications with this name.
func newReceiver(name string, c config.Config, version string) (sink.Sink, error) {
	r := c.Emission.Receivers[name]
	return sink.NewWebhook(sink.WebhookOptions{
		Name: name, Form: sink.Format(r.Form), URL: r.URL, Key: r.Key, Secret: r.Secret, Timeout: c.Emission.Webhook.Timeout(), AllowPrivate: r.AllowPrivate,
		Source: c.Emission.Source, Version: version, PublicURL: c.LinkBase(),
	})
}

// newSenders returns the relay, which delivers events, and the notifier, which creates
// notifications.
func newSenders(o Options, db *postgres.DB, counts emission.Counts) (*emission.Relay, *emission.Notifier, error) {
	list, err := buildRoutes(o.Config.Emission)
	if err != nil {
		return nil, nil, err
	}
	relay, err := newRelay(o, db, counts)
	if err != nil {
		return nil, nil, err
	}
	return relay, emission.NewNotifier(emission.NotifierOptions{DB: db, Installation: o.Config.Emission.Source, Routes: list, Wake: relay.Wake, Log: o.Log}), nil
}
