package metrics

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"tasker.example/tasker"
)

// letterBuckets are the histogram bounds for the time from dead-lettering to handling, in ms.
// RabbitMQ records times in seconds, and a dead letter may wait until its TTL.
var letterBuckets = []float64{250, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 1_800_000, 7_200_000, 86_400_000}

// Sources provides the values of the dispatch gauges.
type Sources struct {
	Backlogs func(context.Context) ([]tasker.Backlog, error)
	Broker   *BrokerSources // nil without a message broker
}

// BrokerSources provides the values of a message broker.
type BrokerSources struct {
	Outcomes    []string // possible outcomes of a dead letter
	Up          func() bool
	Outbox      func(context.Context) (pending int64, oldest time.Duration, err error)
	DeadLetters func(context.Context) (int64, error) // waiting dead letters; optional

	// Canary returns when the last canary message was dead-lettered, or zero. Optional.
	Canary func(context.Context) (time.Time, error)
}

// dispatch contains the instruments of queues and dispatch.
type dispatch struct {
	Sources

	expired     metric.Int64Counter
	announced   metric.Int64Counter // this and the next three are nil without a broker
	reannounced metric.Int64Counter
	letters     metric.Int64Counter
	latency     metric.Float64Histogram

	steps, unserved, workers metric.Int64ObservableGauge
	held, limited, saturated metric.Int64ObservableGauge
	up, depth, pending       metric.Int64ObservableGauge
	canary                   metric.Int64ObservableGauge
	waiting, oldest          metric.Float64ObservableGauge

	// Values read last; guarded by Metrics.mu.
	backlogs   []tasker.Backlog
	outbox     int64
	outboxAge  time.Duration
	outboxRead bool
}

// ObserveDispatch adds the gauges for the sources and, if there is a broker, the counters for it.
// It must be called before anything is counted. If the database cannot be read, the gauges that
// depend on it keep their last values; those of the broker do not.
func (m *Metrics) ObserveDispatch(s Sources) error {
	m.mu.Lock()
	m.dispatch.Sources = s
	m.mu.Unlock()
	d := &m.dispatch
	observed, err := newGauges(m.meter, []gauge{
		{&d.steps, "tasker.queue.steps", "Steps that wait for a worker, by namespace; of a handler at most 1000 are counted."},
		{&d.unserved, "tasker.queue.unserved_steps", "Steps that wait while no worker for their handler is alive, by namespace; of a handler at most 1000 are counted."},
		{&d.held, "tasker.held_steps", "Steps that a hold keeps from workers, by namespace; of a handler at most 1000 are counted."},
		{&d.limited, "tasker.limited_steps", "Steps that a limit keeps from workers, by namespace; of a handler at most 1000 are counted."},
		{&d.saturated, "tasker.queue.saturated_steps", "Steps that wait for a worker past their limit because live ones are busy, by namespace; of a handler at most 1000 are counted."},
		{&d.workers, "tasker.workers.live", "Workers that are alive and take work, by namespace."},
	})
	if err != nil {
		return err
	}
	d.waiting, err = m.meter.Float64ObservableGauge("tasker.queue.oldest_seconds",
		metric.WithDescription("For how long the oldest step has waited for a worker, by namespace; 0 if none waits."))
	if err != nil {
		return fmt.Errorf("metric tasker.queue.oldest_seconds: %w", err)
	}
	if err := register(m.meter, "queues", m.observeBacklogs, append(observed, d.waiting)...); err != nil || s.Broker == nil {
		return err
	}
	if err := d.countBroker(m.meter, s.Broker.Outcomes); err != nil {
		return err
	}
	observed, err = newGauges(m.meter, []gauge{
		{&d.up, "tasker.dispatch.broker_up", "1 while this server can publish to the message broker, else 0."},
		{&d.depth, "tasker.dispatch.dead_letter_queue.depth", "Dead letters that wait to be handled; absent while the broker is away."},
		{&d.canary, "tasker.dispatch.canary.returned_timestamp_seconds", "Unix time at which a canary last became a dead letter, as expected; 0 before the first, absent while unknown."},
		{&d.pending, "tasker.dispatch.outbox.pending", "Steps that wait to be announced; at most 10000 are counted."},
	})
	if err != nil {
		return err
	}
	d.oldest, err = m.meter.Float64ObservableGauge("tasker.dispatch.outbox.oldest_seconds",
		metric.WithDescription("For how long the step has waited that is next to be announced; 0 if none does."))
	if err != nil {
		return fmt.Errorf("metric tasker.dispatch.outbox.oldest_seconds: %w", err)
	}
	return register(m.meter, "the message broker", m.observeBroker, append(observed, d.oldest)...)
}

type gauge struct {
	into        *metric.Int64ObservableGauge
	name, about string
}

func newGauges(meter metric.Meter, list []gauge) ([]metric.Observable, error) {
	var made []metric.Observable
	for _, g := range list {
		var err error
		if *g.into, err = meter.Int64ObservableGauge(g.name, metric.WithDescription(g.about)); err != nil {
			return nil, fmt.Errorf("metric %s: %w", g.name, err)
		}
		made = append(made, *g.into)
	}
	return made, nil
}

// register registers a callback for gauges and observable counters.
func register(meter metric.Meter, subject string, f metric.Callback, observed ...metric.Observable) error {
	if _, err := meter.RegisterCallback(f, observed...); err != nil {
		return fmt.Errorf("metrics of %s: %w", subject, err)
	}
	return nil
}

// countBroker creates the counters for a broker, with the value 0.
func (d *dispatch) countBroker(meter metric.Meter, outcomes []string) error {
	err := newCounters(meter, []counter{
		{&d.announced, "tasker.dispatch.announced.total", "Steps that this server announced through the message broker, by the broker's response."},
		{&d.reannounced, "tasker.dispatch.reannounced.total", "Steps whose announcement was lost, and that this server announced again."},
		{&d.letters, "tasker.dispatch.dead_letters.total", "Dead letters that this server handled, by what became of them."},
	})
	if err != nil {
		return err
	}
	d.latency, err = meter.Float64Histogram("tasker.dispatch.dead_letter.latency", metric.WithUnit("ms"),
		metric.WithDescription("Time from a message becoming a dead letter, with a precision of one second, until this server had handled it."),
		metric.WithExplicitBucketBoundaries(letterBuckets...))
	if err != nil {
		return fmt.Errorf("metric tasker.dispatch.dead_letter.latency: %w", err)
	}
	ctx := context.Background()
	d.reannounced.Add(ctx, 0)
	for _, o := range []string{"confirmed", "failed"} {
		d.announced.Add(ctx, 0, withOutcome(o))
	}
	for _, o := range outcomes {
		d.letters.Add(ctx, 0, withOutcome(o))
	}
	return nil
}

// observeBacklogs reports the backlogs. It includes namespaces that have a template but neither a
// backlog nor workers.
func (m *Metrics) observeBacklogs(ctx context.Context, o metric.Observer) error {
	ctx, cancel := context.WithTimeout(ctx, m.databaseTimeout())
	defer cancel()
	list, err := m.dispatch.Backlogs(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.log.WarnContext(ctx, "could not count queues; their metrics keep the last values", "err", err)
	} else {
		m.dispatch.backlogs = selectNeediest(list)
	}
	shown := map[string]bool{}
	for _, b := range m.dispatch.backlogs {
		shown[b.Namespace] = true
		m.dispatch.observeBacklog(o, b)
	}
	for _, n := range m.named.list() {
		if !shown[n] && len(shown) < maxGauges {
			shown[n] = true
			m.dispatch.observeBacklog(o, tasker.Backlog{Namespace: n})
		}
	}
	return nil
}

// selectNeediest returns the first maxGauges backlogs and the sum of the others. The list must be
// sorted by need, greatest first.
func selectNeediest(list []tasker.Backlog) []tasker.Backlog {
	var few []tasker.Backlog
	others := tasker.Backlog{Namespace: OtherNamespaces}
	more := false
	for _, b := range list {
		if len(few) < maxGauges && b.Namespace != OtherNamespaces {
			few = append(few, b)
			continue
		}
		more = true
		others.Steps += b.Steps
		others.Unserved += b.Unserved
		others.Held += b.Held
		others.Limited += b.Limited
		others.Saturated += b.Saturated
		others.Workers += b.Workers
		others.Oldest = max(others.Oldest, b.Oldest)
	}
	if more {
		few = append(few, others)
	}
	return few
}

func (d *dispatch) observeBacklog(o metric.Observer, b tasker.Backlog) {
	of := metric.WithAttributes(attribute.String("namespace", b.Namespace))
	o.ObserveInt64(d.steps, b.Steps, of)
	o.ObserveInt64(d.unserved, b.Unserved, of)
	o.ObserveInt64(d.held, b.Held, of)
	o.ObserveInt64(d.limited, b.Limited, of)
	o.ObserveInt64(d.saturated, b.Saturated, of)
	o.ObserveInt64(d.workers, b.Workers, of)
	o.ObserveFloat64(d.waiting, b.Oldest.Seconds(), of)
}

// brokerTime limits how long a scrape waits for the broker.
const brokerTime = 2 * time.Second

func (m *Metrics) observeBroker(ctx context.Context, o metric.Observer) error {
	m.observeOutbox(ctx, o)
	d := &m.dispatch
	if !d.Broker.Up() {
		o.ObserveInt64(d.up, 0)
		return nil
	}
	o.ObserveInt64(d.up, 1)
	ctx, cancel := context.WithTimeout(ctx, m.limitTimeout(brokerTime))
	defer cancel()
	if d.Broker.Canary != nil {
		m.observeCanary(ctx, o)
	}
	if d.Broker.DeadLetters == nil {
		return nil
	}
	depth, err := d.Broker.DeadLetters(ctx)
	if err != nil {
		m.log.WarnContext(ctx, "could not count dead letters; their metric is omitted", "err", err)
		return nil
	}
	o.ObserveInt64(d.depth, depth)
	return nil
}

func (m *Metrics) observeCanary(ctx context.Context, o metric.Observer) {
	at, err := m.dispatch.Broker.Canary(ctx)
	switch {
	case err != nil:
		m.log.WarnContext(ctx, "could not read when the canary returned; its metric is omitted", "err", err)
	case at.IsZero():
		o.ObserveInt64(m.dispatch.canary, 0)
	default:
		o.ObserveInt64(m.dispatch.canary, at.Unix())
	}
}

func (m *Metrics) observeOutbox(ctx context.Context, o metric.Observer) {
	ctx, cancel := context.WithTimeout(ctx, m.databaseTimeout())
	defer cancel()
	d := &m.dispatch
	pending, oldest, err := d.Broker.Outbox(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.log.WarnContext(ctx, "could not count steps to be announced; their metrics keep the last values", "err", err)
	} else {
		d.outbox, d.outboxAge, d.outboxRead = pending, oldest, true
	}
	if d.outboxRead {
		o.ObserveInt64(d.pending, d.outbox)
		o.ObserveFloat64(d.oldest, d.outboxAge.Seconds())
	}
}

// initDispatchSeries creates the series of a namespace with the value 0. The caller must hold m.mu.
func (m *Metrics) initDispatchSeries(ctx context.Context, namespace string) {
	detectors := []string{tasker.DetectedSweep}
	if m.dispatch.Broker != nil {
		detectors = append(detectors, tasker.DetectedBroker)
	}
	for _, by := range detectors {
		for _, code := range []string{tasker.NoWorkers, tasker.DispatchExpired} {
			m.dispatch.expired.Add(ctx, 0, withExpired(namespace, by, code))
		}
	}
}

// StepExpired counts a step whose expiry in its queue is committed.
func (m *Metrics) StepExpired(ctx context.Context, namespace, detectedBy, detailCode string) {
	if m != nil {
		m.dispatch.expired.Add(ctx, 1, withExpired(m.named.labelFor(namespace), detectedBy, detailCode))
	}
}

// Announced counts confirmed and unconfirmed announcements.
func (m *Metrics) Announced(ctx context.Context, confirmed, failed int) {
	if m == nil || m.dispatch.announced == nil {
		return
	}
	m.dispatch.announced.Add(ctx, int64(confirmed), withOutcome("confirmed"))
	m.dispatch.announced.Add(ctx, int64(failed), withOutcome("failed"))
}

// Reannounced counts steps whose announcement was lost.
func (m *Metrics) Reannounced(ctx context.Context, steps int) {
	if m != nil && m.dispatch.reannounced != nil {
		m.dispatch.reannounced.Add(ctx, int64(steps))
	}
}

// DeadLetter counts a dead letter by outcome and records its latency. A latency of 0 means unknown.
func (m *Metrics) DeadLetter(ctx context.Context, outcome string, latency time.Duration) {
	if m == nil || m.dispatch.letters == nil {
		return
	}
	m.dispatch.letters.Add(ctx, 1, withOutcome(outcome))
	if latency > 0 {
		m.dispatch.latency.Record(ctx, float64(latency)/float64(time.Millisecond))
	}
}

func withOutcome(outcome string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("outcome", outcome))
}

func withExpired(namespace, detectedBy, detailCode string) metric.MeasurementOption {
	return metric.WithAttributes(
		attribute.String("namespace", namespace), attribute.String("detected_by", detectedBy), attribute.String("detail_code", detailCode))
}
