package metrics

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"tasker.example/tasker"
)

// operations contains the instruments of operations. They are nil before
// [Metrics.ObserveOperations].
type operations struct {
	paused metric.Int64Counter
	items  map[tasker.ItemState]int64 // values read last; guarded by Metrics.mu
}

// ObserveOperations adds the gauge of open items and the counter of pauses. It must be called
// before anything is counted. If the database cannot be read, the gauge keeps its last values.
func (m *Metrics) ObserveOperations(
	read func(context.Context) (map[tasker.ItemState]int64, error),
) error {
	var items metric.Int64ObservableGauge
	observed, err := newGauges(m.meter, []gauge{
		{&items, "tasker.operation.items", "Items of operations that have not come to their end, by state; the same in every server."},
	})
	if err != nil {
		return err
	}
	o := &m.operations
	err = newCounters(m.meter, []counter{
		{&o.paused, "tasker.operation.paused.total", "Pauses of operations that a guard of this server made."},
	})
	if err != nil {
		return err
	}
	for _, r := range tasker.PauseReasons() {
		if r.ByGuard() {
			o.paused.Add(context.Background(), 0, withGuard(r))
		}
	}
	return register(m.meter, "operations", func(ctx context.Context, to metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, m.databaseTimeout())
		defer cancel()
		counts, err := read(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		if err != nil {
			m.log.WarnContext(ctx, "could not count the items of operations; the metric keeps its last value", "err", err)
		} else {
			o.items = counts
		}
		for _, s := range tasker.ItemStates() {
			to.ObserveInt64(items, o.items[s], metric.WithAttributes(attribute.String("state", string(s))))
		}
		return nil
	}, observed...)
}

// OperationPaused counts a pause by a guard.
func (m *Metrics) OperationPaused(ctx context.Context, why tasker.PauseReason) {
	if m != nil && m.operations.paused != nil {
		m.operations.paused.Add(ctx, 1, withGuard(why))
	}
}

func withGuard(r tasker.PauseReason) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("guard", string(r)))
}
