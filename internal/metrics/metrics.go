// Package metrics defines the OpenTelemetry instruments of a server; package telemetry exports
// them. Attributes are low-cardinality: no instrument carries an id.
package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"tasker.example/tasker"
)

// scope is the instrumentation scope.
const scope = "tasker"

// Histogram bounds: durations of sweeps in ms, and open times of investigations in hours.
var (
	detectionBuckets = []float64{5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000}
	queueBuckets     = []float64{0.05, 0.25, 0.5, 1, 2, 4, 8, 12, 24, 48, 72, 168, 336, 720}
)

// A Read returns the number of open investigations and the namespaces that have a template.
type Read func(context.Context) (pending int64, namespaces []string, err error)

// Metrics contains the instruments. It is safe for concurrent use; a nil Metrics counts nothing.
type Metrics struct {
	meter        metric.Meter
	created      metric.Int64Counter
	detected     metric.Int64Counter
	transitioned metric.Int64Counter
	failed       metric.Int64Counter
	runs         metric.Int64Counter
	unexplained  metric.Int64Counter
	leftOut      metric.Int64Counter
	notBegun     metric.Int64Counter
	duration     metric.Float64Histogram
	inQueue      metric.Float64Histogram
	open         metric.Int64ObservableGauge
	database     metric.Int64ObservableGauge
	dispatch     dispatch
	emission     emission
	operations   operations
	holds        []tasker.HoldGroup // values read last; guarded by mu

	lastRun atomic.Int64              // nanoseconds
	slow    atomic.Bool               // the first query of the last collection timed out
	end     atomic.Pointer[time.Time] // deadline of the last collection; nil before the first
	read    Read
	log     *slog.Logger

	mu      sync.Mutex
	late    metric.Float64Histogram // of schedules; nil before ObserveSchedules
	pending int64
	known   bool            // pending was read once
	begun   map[string]bool // namespaces whose counters exist
	named   nameSet
}

// New creates the instruments. The gauges call read on each collection. If it fails, they keep
// their last values, so that alerts persist.
func New(provider metric.MeterProvider, read Read, log *slog.Logger) (*Metrics, error) {
	meter := provider.Meter(scope)
	m := &Metrics{meter: meter, read: read, log: log, begun: map[string]bool{}}
	err := newCounters(meter, []counter{
		{&m.created, "tasker.dlq.entries_created.total", "Investigations opened by this server."},
		{&m.detected, "tasker.staleness.tasks_detected.total", "Stale tasks that this server's sweep found, by the state they stood in."},
		{&m.transitioned, "tasker.staleness.tasks_transitioned_to_error.total", "Stale tasks that this server's sweep moved to error."},
		{&m.failed, "tasker.staleness.tasks_failed.total", "Stale tasks for which this server's sweep could not open an investigation, by the SQLSTATE of what failed."},
		{&m.runs, "tasker.staleness.detection_runs.total", "Runs of this server's sweep, by outcome."},
		{&m.unexplained, "tasker.explain.unknown.total", "Tasks and steps that this server could not explain: defects."},
		{&m.leftOut, "tasker.attributes.left_out.total", "Search attributes of tasks that this server could not evaluate, and left out."},
		{&m.notBegun, "tasker.tasks.expired.total", "Tasks that this server ended because no step of them was claimed in time, by namespace."},
		{&m.dispatch.expired, "tasker.dispatch.expired.total", "Steps that this server failed because no worker took them in time."},
	})
	if err != nil {
		return nil, err
	}
	for _, h := range []struct {
		into              *metric.Float64Histogram
		name, unit, about string
		buckets           []float64
	}{
		{&m.duration, "tasker.staleness.detection.duration", "ms", "Duration of a run of the sweep.", detectionBuckets},
		{&m.inQueue, "tasker.dlq.time_in_queue", "h", "How long investigations were open when this server ended them.", queueBuckets},
	} {
		var err error
		*h.into, err = meter.Float64Histogram(h.name, metric.WithUnit(h.unit), metric.WithDescription(h.about),
			metric.WithExplicitBucketBoundaries(h.buckets...))
		if err != nil {
			return nil, fmt.Errorf("metric %s: %w", h.name, err)
		}
	}
	observed, err := newGauges(meter, []gauge{
		{&m.open, "tasker.dlq.pending_investigations", "Open investigations in the database; the same in every server."},
		{&m.database, "tasker.database.up", "1 if the database answers this server and accepts writes, else 0."},
	})
	if err != nil {
		return nil, err
	}
	if err := register(meter, "investigations", m.observe, observed...); err != nil {
		return nil, err
	}
	m.unexplained.Add(context.Background(), 0)
	m.leftOut.Add(context.Background(), 0)
	for _, outcome := range []string{"success", "failure"} {
		m.runs.Add(context.Background(), 0, metric.WithAttributes(attribute.String("outcome", outcome)))
	}
	return m, nil
}

type counter struct {
	into        *metric.Int64Counter
	name, about string
}

func newCounters(meter metric.Meter, list []counter) error {
	for _, c := range list {
		var err error
		if *c.into, err = meter.Int64Counter(c.name, metric.WithDescription(c.about)); err != nil {
			return fmt.Errorf("metric %s: %w", c.name, err)
		}
	}
	return nil
}

type total struct {
	into        *metric.Int64ObservableCounter
	name, about string
}

func newTotals(meter metric.Meter, list []total) error {
	for _, c := range list {
		var err error
		if *c.into, err = meter.Int64ObservableCounter(c.name, metric.WithDescription(c.about)); err != nil {
			return fmt.Errorf("metric %s: %w", c.name, err)
		}
	}
	return nil
}

// Timeouts of a scrape: observeTime for one database query, lateTime for later ones after a
// timeout, and collectTime for all of them, which is below the 10 seconds of Prometheus.
const (
	observeTime = 3 * time.Second
	lateTime    = 500 * time.Millisecond
	collectTime = 8 * time.Second
)

// databaseTimeout returns the timeout for a query other than the first one of a collection.
func (m *Metrics) databaseTimeout() time.Duration {
	if m.slow.Load() {
		return m.limitTimeout(lateTime)
	}
	return m.limitTimeout(observeTime)
}

// limitTimeout returns limit, or the time left for the collection if that is less.
func (m *Metrics) limitTimeout(limit time.Duration) time.Duration {
	if end := m.end.Load(); end != nil {
		return min(limit, time.Until(*end))
	}
	return limit
}

// observe is the first callback of a collection.
func (m *Metrics) observe(ctx context.Context, o metric.Observer) error {
	end := time.Now().Add(collectTime)
	m.end.Store(&end)
	ctx, cancel := context.WithTimeout(ctx, observeTime)
	defer cancel()
	pending, namespaces, err := m.read(ctx)
	m.slow.Store(ctx.Err() != nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		o.ObserveInt64(m.database, 0)
		m.log.WarnContext(ctx, "could not count open investigations; the metric keeps its last value", "err", err)
	} else {
		o.ObserveInt64(m.database, 1)
		m.pending, m.known = pending, true
		m.initSeries(ctx, namespaces)
	}
	if m.known {
		o.ObserveInt64(m.open, m.pending)
	}
	return nil
}

// initSeries creates the series of namespaces with the value 0, because rate() misses the first
// value of a new series.
func (m *Metrics) initSeries(ctx context.Context, namespaces []string) {
	if len(namespaces) > maxBegun {
		namespaces = append([]string{OtherNamespaces}, namespaces...)
	}
	for _, n := range namespaces {
		if m.begun[n] || n != OtherNamespaces && (len(m.begun) > maxBegun || !m.named.add(n)) {
			continue
		}
		m.begun[n] = true
		for _, r := range tasker.Reasons() {
			m.created.Add(ctx, 0, withEntry(r, n))
		}
		for _, s := range watched {
			m.detected.Add(ctx, 0, withTask(tasker.StalenessTimeout, n, s))
			m.transitioned.Add(ctx, 0, withTask(tasker.StalenessTimeout, n, s))
		}
		for _, r := range []tasker.Reason{tasker.StalenessTimeout, tasker.MaxRetriesExceeded} { // failed without investigation
			m.detected.Add(ctx, 0, withTask(r, n, tasker.TaskError))
		}
		m.initDispatchSeries(ctx, n)
	}
}

// watched lists the states with a staleness threshold.
var watched = []tasker.TaskState{tasker.TaskWaitingForDependencies, tasker.TaskWaitingForRetry, tasker.TaskStepsInProcess}

// EntryCreated counts an investigation whose creation is committed.
func (m *Metrics) EntryCreated(ctx context.Context, reason tasker.Reason, namespace string) {
	if m != nil {
		m.created.Add(ctx, 1, withEntry(reason, m.named.labelFor(namespace)))
	}
}

// LastRun returns the duration of the last sweep, or 0 if there was none.
func (m *Metrics) LastRun() time.Duration { return time.Duration(m.lastRun.Load()) }

// A Stale is a task that the sweep found.
type Stale struct {
	Reason       tasker.Reason
	Namespace    string
	State        tasker.TaskState
	Transitioned bool // moved to error
	Failed       bool
	ErrorCode    string // SQLSTATE, if it failed
}

// Swept counts a sweep with its duration and its findings, or its failure.
func (m *Metrics) Swept(ctx context.Context, took time.Duration, found []Stale, failure error) {
	if m == nil {
		return
	}
	outcome := "success"
	if failure != nil {
		outcome = "failure"
	}
	m.lastRun.Store(int64(took))
	m.runs.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome)))
	m.duration.Record(ctx, float64(took)/float64(time.Millisecond))
	for _, f := range found {
		f.Namespace = m.named.labelFor(f.Namespace)
		m.detected.Add(ctx, 1, withTask(f.Reason, f.Namespace, f.State))
		if f.Transitioned {
			m.transitioned.Add(ctx, 1, withTask(f.Reason, f.Namespace, f.State))
		}
		if f.Failed {
			m.failed.Add(ctx, 1, metric.WithAttributes(attribute.String("error_code", f.ErrorCode)))
		}
	}
}

// NotExplained counts a task or step for which no condition was found.
func (m *Metrics) NotExplained(ctx context.Context) {
	if m != nil {
		m.unexplained.Add(ctx, 1)
	}
}

// AttributeSkipped counts a search attribute that could not be evaluated.
func (m *Metrics) AttributeSkipped(ctx context.Context) {
	if m != nil {
		m.leftOut.Add(ctx, 1)
	}
}

// TasksExpired counts tasks that ended because none of their steps was claimed in time.
func (m *Metrics) TasksExpired(list []tasker.Task) {
	if m == nil {
		return
	}
	for _, t := range list {
		of := attribute.String("namespace", m.named.labelFor(t.Namespace))
		m.notBegun.Add(context.Background(), 1, metric.WithAttributes(of))
	}
}

// Resolved counts an ended investigation and its open time.
func (m *Metrics) Resolved(ctx context.Context, reason tasker.Reason, status tasker.ResolutionStatus, open time.Duration) {
	if m != nil {
		m.inQueue.Record(ctx, open.Hours(), metric.WithAttributes(
			attribute.String("dlq_reason", string(reason)), attribute.String("resolution_status", string(status))))
	}
}

func withEntry(r tasker.Reason, namespace string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("dlq_reason", string(r)), attribute.String("namespace", namespace))
}

func withTask(r tasker.Reason, namespace string, s tasker.TaskState) metric.MeasurementOption {
	return metric.WithAttributes(
		attribute.String("dlq_reason", string(r)), attribute.String("namespace", namespace), attribute.String("state", string(s)))
}
