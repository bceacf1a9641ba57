package metrics

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// A RequestCount contains the current requests of one class, and the totals of served and refused
// requests.
type RequestCount struct {
	Class            string
	Running, Waiting int
	Served           int64
	Refused          map[string]int64
}

// ObserveRequests adds the counts of requests by class and a gauge for pace, which returns the
// share of time that storing tasks may take, from 0 to 1. pace is nil if that is not limited.
func (m *Metrics) ObserveRequests(counts func() []RequestCount, pace func() float64) error {
	var served, refused metric.Int64ObservableCounter
	var running, waiting, percent metric.Int64ObservableGauge
	if err := newTotals(m.meter, []total{
		{&served, "tasker.requests.served.total", "Requests that this server has begun to serve, by their class."},
		{&refused, "tasker.requests.refused.total", "Requests that this server has refused because there were too many, by their class and the reason."},
	}); err != nil {
		return err
	}
	observed, err := newGauges(m.meter, []gauge{
		{&running, "tasker.requests.running", "Requests that this server is serving, by their class."},
		{&waiting, "tasker.requests.waiting", "Requests that wait in this server for their turn, by their class."},
		{&percent, "tasker.creates.pace_percent", "Part of its time that storing tasks may take, in percent: under 100 while it would slow workers down."},
	})
	if err != nil {
		return err
	}
	return register(m.meter, "requests", func(_ context.Context, o metric.Observer) error {
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
}
