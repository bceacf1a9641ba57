package metrics

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"tasker.example/tasker"
)

// ObserveStaleness adds the gauge of tasks past 80 % of their staleness threshold, by namespace and
// health. read must sort namespaces by number of tasks, descending. If the database cannot be read,
// the gauge keeps its last values.
func (m *Metrics) ObserveStaleness(
	read func(context.Context) ([]tasker.StalenessCount, error),
) error {
	var tasks metric.Int64ObservableGauge
	observed, err := newGauges(m.meter, []gauge{
		{&tasks, "tasker.staleness.tasks", "Tasks past 80 % of their staleness threshold (warning) or past all of it (stale); at most 10000 of each are counted."},
	})
	if err != nil {
		return err
	}
	var counts []tasker.StalenessCount // guarded by m.mu
	return register(m.meter, "staleness", func(ctx context.Context, to metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, m.databaseTimeout())
		defer cancel()
		list, err := read(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		if err != nil {
			m.log.WarnContext(ctx, "could not count tasks near their staleness thresholds; the metric keeps its last values", "err", err)
		} else {
			counts = list
		}
		for namespace, byHealth := range buildStalenessSeries(counts, m.named.list()) {
			for _, h := range []tasker.Health{tasker.Stale, tasker.Warning} {
				to.ObserveInt64(tasks, byHealth[h], metric.WithAttributes(
					attribute.String("namespace", namespace), attribute.String("health_status", string(h))))
			}
		}
		return nil
	}, observed...)
}

// buildStalenessSeries returns the counts by namespace: those of the namespaces with the most
// tasks, the sum of the others and, if there is room, zeros for known namespaces without such
// tasks.
func buildStalenessSeries(counts []tasker.StalenessCount, known []string) map[string]map[tasker.Health]int64 {
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
