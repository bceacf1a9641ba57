package metrics

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"tasker.example/tasker"
)

// ObserveStaleness adds the gauge of the tasks that are past 80 % of their staleness threshold, by
// namespace and health. Read returns those with most tasks first. While the database cannot be read
// the gauge keeps its last value.
func (m *Metrics) ObserveStaleness(provider metric.MeterProvider, read func(context.Context) ([]tasker.StalenessCount, error)) error {
	meter := provider.Meter(scope)
	var tasks metric.Int64ObservableGauge
	observed, err := makeGauges(meter, []gauge{
		{&tasks, "tasker.staleness.tasks", "Tasks past 80 % of their staleness threshold (warning) or past all of it (stale); at most 10000 of each are counted."},
	})
	if err != nil {
		return err
	}
	var counts []tasker.StalenessCount // guarded by m.mu
	_, err = meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, m.databaseTime())
		defer cancel()
		list, err := read(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		if err != nil {
			m.log.WarnContext(ctx, "tasks near their staleness thresholds could not be counted; the metric keeps its last values", "err", err)
		} else {
			counts = list
		}
		for namespace, byHealth := range stalenessSeries(counts, m.named.list()) {
			for _, h := range []tasker.Health{tasker.Stale, tasker.Warning} {
				to.ObserveInt64(tasks, byHealth[h], metric.WithAttributes(attribute.String("namespace", namespace), attribute.String("health_status", string(h))))
			}
		}
		return nil
	}, observed...)
	if err != nil {
		return fmt.Errorf("metrics of staleness: %w", err)
	}
	return nil
}

// stalenessSeries adds up the counts of the namespaces that are shown: those with most tasks, the
// others as one, and as many as fit of those that have no such task.
func stalenessSeries(counts []tasker.StalenessCount, known []string) map[string]map[tasker.Health]int64 {
	series := map[string]map[tasker.Health]int64{}
	for _, c := range counts {
		namespace := c.Namespace
		if series[namespace] == nil && len(series) >= maxGauges {
			namespace = OtherNamespaces
		}
		if series[namespace] == nil {
			series[namespace] = map[tasker.Health]int64{}
		}
		series[namespace][c.Health] += c.Tasks
	}
	for _, n := range known {
		if series[n] == nil && len(series) < maxGauges {
			series[n] = nil
		}
	}
	return series
}
