package metrics

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"tasker.example/tasker"
)

// ObserveHolds adds the gauges of open holds and of handlers whose breakers this server cannot
// open. If the database cannot be read, the former keeps its last values.
func (m *Metrics) ObserveHolds(
	read func(context.Context) ([]tasker.HoldGroup, error), unopened func() int64,
) error {
	var holds, breakers metric.Int64ObservableGauge
	observed, err := newGauges(m.meter, []gauge{
		{&holds, "tasker.holds", "Holds that have not ended, by kind and state; the same in every server."},
		{&breakers, "tasker.breakers.unopened", "Handlers whose breaker this server would open, and cannot: too many holds are open."},
	})
	if err != nil {
		return err
	}
	return register(m.meter, "holds", func(ctx context.Context, to metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, m.databaseTimeout())
		defer cancel()
		to.ObserveInt64(breakers, unopened())
		counts, err := read(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		if err != nil {
			m.log.WarnContext(ctx, "could not count holds; the metric keeps its last value", "err", err)
		} else {
			m.holds = counts
		}
		for _, g := range completeGroups(m.holds) {
			to.ObserveInt64(holds, g.Holds, metric.WithAttributes(
				attribute.String("kind", string(g.Kind)), attribute.String("state", string(g.State))))
		}
		return nil
	}, observed...)
}

// completeGroups adds the groups that have no holds, so that their series begin at 0.
func completeGroups(counts []tasker.HoldGroup) []tasker.HoldGroup {
	all := make([]tasker.HoldGroup, 0, 4)
	for _, kind := range tasker.HoldKinds() {
		for _, state := range []tasker.HoldState{tasker.HoldActive, tasker.HoldReleasing} {
			g := tasker.HoldGroup{Kind: kind, State: state}
			if i := slices.IndexFunc(counts, func(c tasker.HoldGroup) bool { return c.Kind == kind && c.State == state }); i >= 0 {
				g.Holds = counts[i].Holds
			}
			all = append(all, g)
		}
	}
	return all
}
