package metrics

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// A RequestCount is the requests of one class that this server has now, and those that it
// has refused since the start, by the reason.
type RequestCount struct {
	Class            string
	Running, Waiting int
	Served           int64
	Refused          map[string]int64
}

// ObserveRequests adds how many requests there are of each class and how many were refused,
// and the part of its time that storing tasks may take, 0 to 1: nil where it is not limited.
func (m *Metrics) ObserveRequests(provider metric.MeterProvider, counts func() []RequestCount, pace func() float64) error {
	meter := provider.Meter(scope)
	var served, refused metric.Int64ObservableCounter
	var running, waiting, percent metric.Int64ObservableGauge
	for _, c := range []struct {
		into        *metric.Int64ObservableCounter
		name, about string
	}{
		{&served, "tasker.requests.served.total", "Requests that this server has begun to serve, by their class."},
		{&refused, "tasker.requests.refused.total", "Requests that this server has refused because there were too many, by their class and the reason."},
	} {
		var err error
		if *c.into, err = meter.Int64ObservableCounter(c.name, metric.WithDescription(c.about)); err != nil {
			return fmt.Errorf("metric %s: %w", c.name, err)
		}
	}
	observed, err := makeGauges(meter, []gauge{
		{&running, "tasker.requests.running", "Requests that this server is serving, by their class."},
		{&waiting, "tasker.requests.waiting", "Requests that wait in this server for their turn, by their class."},
		{&percent, "tasker.creates.pace_percent", "Part of its time that storing tasks may take, in percent: under 100 while it would slow workers down."},
	})
	if err != nil {
		return err
	}
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		if pace != nil {
			o.ObserveInt64(percent, int64(100*pace()))
		}
		for _, c := range counts() {
			class := attribute.String("class", c.Class)
			o.ObserveInt64(running, int64(c.Running), metric.WithAttributes(class))
			o.ObserveInt64(waiting, int64(c.Waiting), metric.WithAttributes(class))
			o.ObserveInt64(served, c.Served, metric.WithAttributes(class))
			for reason, n := range c.Refused {
				o.ObserveInt64(refused, n, metric.WithAttributes(class, attribute.String("reason", reason)))
			}
		}
		return nil
	}, append(observed, served, refused)...)
	if err != nil {
		return fmt.Errorf("metrics of requests: %w", err)
	}
	return nil
}
