package metrics

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"tasker.example/tasker"
)

// emissionBuckets are the histogram bounds for the time from an event to its confirmation, in ms.
// An event waits as long as its sink is down.
var emissionBuckets = []float64{
	10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000, 86_400_000,
}

// SinkSource provides the values of the sink gauges.
type SinkSource struct {
	Sinks []string // sinks of this server; if empty, there are no metrics
	Read  func(context.Context) ([]tasker.SinkState, error)
}

// emission contains the instruments of deliveries. The counters are nil without sinks.
type emission struct {
	SinkSource

	failures metric.Int64Counter
	emitted  metric.Int64Counter
	setAside metric.Int64Counter
	latency  metric.Float64Histogram

	pending, aside, up metric.Int64ObservableGauge
	oldest             metric.Float64ObservableGauge

	states []tasker.SinkState // values read last; guarded by Metrics.mu
}

// ObserveEmission adds the delivery counters, with the value 0 for each topic and sink, and the
// sink gauges. It must be called before anything is counted. If the database cannot be read, the
// gauges keep their last values, except for the age of the oldest event, which grows.
func (m *Metrics) ObserveEmission(s SinkSource) error {
	if len(s.Sinks) == 0 {
		return nil
	}
	m.mu.Lock()
	m.emission.SinkSource = s
	m.mu.Unlock()
	e := &m.emission
	if err := e.count(m.meter); err != nil {
		return err
	}
	observed, err := newGauges(m.meter, []gauge{
		{&e.pending, "tasker.dlq.emission.pending", "Events that a sink has not got yet; at most 100000 are counted."},
		{&e.aside, "tasker.dlq.emission.set_aside", "Events that a sink refused too often, and that are sent again only when somebody asks for it; at most 100000 are counted."},
		{&e.up, "tasker.dlq.emission.sink_up", "0 while a sink takes no events, else 1; the same in every server."},
	})
	if err != nil {
		return err
	}
	e.oldest, err = m.meter.Float64ObservableGauge("tasker.dlq.emission.oldest_seconds",
		metric.WithDescription("How long ago the oldest event happened that a sink has not got; 0 if it has all."))
	if err != nil {
		return fmt.Errorf("metric tasker.dlq.emission.oldest_seconds: %w", err)
	}
	return register(m.meter, "the sinks", m.observeSinks, append(observed, e.oldest)...)
}

// count creates the counters with the value 0.
func (e *emission) count(meter metric.Meter) error {
	err := newCounters(meter, []counter{
		{&e.failures, "tasker.dlq.emit_failures.total", "Events that this server could not send to a sink, all tries spent; they wait and are sent again."},
		{&e.emitted, "tasker.dlq.events_emitted.total", "Events that this server sent and a sink confirmed."},
		{&e.setAside, "tasker.dlq.events_set_aside.total", "Events that this server stopped sending because a sink refused them too often."},
	})
	if err != nil {
		return err
	}
	e.latency, err = meter.Float64Histogram("tasker.dlq.emission.latency", metric.WithUnit("ms"),
		metric.WithDescription("From when an event happened to when a sink had confirmed it."),
		metric.WithExplicitBucketBoundaries(emissionBuckets...))
	if err != nil {
		return fmt.Errorf("metric tasker.dlq.emission.latency: %w", err)
	}
	ctx := context.Background()
	for _, sink := range e.Sinks {
		for _, topic := range tasker.Topics() {
			for _, c := range []metric.Int64Counter{e.failures, e.emitted, e.setAside} {
				c.Add(ctx, 0, withEmission(topic, sink))
			}
		}
	}
	return nil
}

func (m *Metrics) observeSinks(ctx context.Context, o metric.Observer) error {
	ctx, cancel := context.WithTimeout(ctx, m.databaseTimeout())
	defer cancel()
	e := &m.emission
	states, err := e.Read(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.log.WarnContext(ctx, "could not read the states of sinks; their metrics keep the last values", "err", err)
	} else {
		e.states = states
	}
	for _, s := range e.states {
		of := withSink(s.Sink)
		o.ObserveInt64(e.pending, s.Pending, of)
		o.ObserveInt64(e.aside, s.Undeliverable, of)
		o.ObserveFloat64(e.oldest, oldestAge(s).Seconds(), of)
		up := int64(0)
		if s.FailingSince == nil {
			up = 1
		}
		o.ObserveInt64(e.up, up, of)
	}
	return nil
}

// oldestAge returns the age of the oldest pending event, or 0 if there is none.
func oldestAge(s tasker.SinkState) time.Duration {
	if s.OldestPending == nil {
		return 0
	}
	return max(0, time.Since(*s.OldestPending))
}

// EmitFailed counts an event whose attempts have all failed.
func (m *Metrics) EmitFailed(ctx context.Context, topic, sink string) {
	if m != nil && m.emission.failures != nil {
		m.emission.failures.Add(ctx, 1, withEmission(topic, sink))
	}
}

// Emitted counts a confirmed event and its latency.
func (m *Metrics) Emitted(ctx context.Context, topic, sink string, after time.Duration) {
	if m == nil || m.emission.emitted == nil {
		return
	}
	m.emission.emitted.Add(ctx, 1, withEmission(topic, sink))
	m.emission.latency.Record(ctx, float64(after)/float64(time.Millisecond), withSink(sink))
}

// EventDropped counts an event that a sink rejected too often.
func (m *Metrics) EventDropped(ctx context.Context, topic, sink string) {
	if m != nil && m.emission.setAside != nil {
		m.emission.setAside.Add(ctx, 1, withEmission(topic, sink))
	}
}

func withEmission(topic, sink string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("topic", topic), attribute.String("sink", sink))
}

func withSink(sink string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("sink", sink))
}
