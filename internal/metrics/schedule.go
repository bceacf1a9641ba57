package metrics

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"tasker.example/tasker"
)

// lateBuckets are the histogram bounds for the delay of firings, in seconds.
var lateBuckets = []float64{0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200}

// ObserveSchedules adds the histogram of firing delays and the gauge of failing schedules. If the
// database cannot be read, the gauge keeps its last value.
func (m *Metrics) ObserveSchedules(failing func(context.Context) (int64, error)) error {
	const name = "tasker.schedule.late_seconds"
	late, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(lateBuckets...),
		metric.WithDescription("How long after its instant, with its jitter, this server made a task of a schedule, or could not."))
	if err != nil {
		return fmt.Errorf("metric %s: %w", name, err)
	}
	err = m.observeCount(cacheCount(failingEvery, failing), "schedules whose tasks fail",
		"tasker.schedules.failing", "Schedules whose last three tasks or more did not succeed, or whose last task could not be made; the same in every server.")
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late = late
	return nil
}

// failingEvery limits how often failing schedules are counted, because the query reads the last
// firings of all schedules.
const failingEvery = time.Minute

// cacheCount returns a function that calls count at most once per interval and caches the result.
func cacheCount(d time.Duration, count func(context.Context) (int64, error)) func(context.Context) (int64, error) {
	var mu sync.Mutex
	var known int64
	var counted time.Time
	return func(ctx context.Context) (int64, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(counted) < d {
			return known, nil
		}
		n, err := count(ctx)
		if err == nil {
			known, counted = n, time.Now()
		}
		return n, err
	}
}

// ObserveDeadlines adds the gauge of overdue tasks.
func (m *Metrics) ObserveDeadlines(overdue func(context.Context) (int64, error)) error {
	return m.observeCount(overdue, "tasks that are overdue",
		"tasker.tasks.overdue", "Open tasks whose due time is over, counted up to 10000 in each namespace; the same in every server.")
}

// ObserveTaskRequests adds the gauge of refused task requests.
func (m *Metrics) ObserveTaskRequests(refused func(context.Context) (int64, error)) error {
	return m.observeCount(refused, "refused task requests",
		"tasker.task_requests.refused", "Tasks requested with the SQL function tasker.create_task that servers refused to create; the same in every server.")
}

// observeCount adds a gauge for a number that count reads from the database. If that fails, the
// gauge keeps its last value.
func (m *Metrics) observeCount(count func(context.Context) (int64, error), what, name, about string) error {
	var g metric.Int64ObservableGauge
	observed, err := newGauges(m.meter, []gauge{{&g, name, about}})
	if err != nil {
		return err
	}
	var known int64
	return register(m.meter, what, func(ctx context.Context, to metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, m.databaseTimeout())
		defer cancel()
		n, err := count(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		if err != nil {
			m.log.WarnContext(ctx, "could not count for a metric; it keeps its last value", "what", what, "err", err)
		} else {
			known = n
		}
		to.ObserveInt64(g, known)
		return nil
	}, observed...)
}

// ScheduleFired records the delays of firings that created a task or could not.
func (m *Metrics) ScheduleFired(list []tasker.Firing) {
	m.mu.Lock()
	late := m.late
	m.mu.Unlock()
	if late == nil { // before ObserveSchedules
		return
	}
	for _, f := range list {
		if f.Kind == tasker.ClockFiring {
			late.Record(context.Background(), float64(f.LateMS)/1000)
		}
	}
}
