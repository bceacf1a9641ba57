package metrics

import (
	"context"
	"fmt"
	"maps"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// A LoopCount contains the statistics of a loop since the start.
type LoopCount struct {
	Name           string
	Passes, Failed int64
	Late           bool // there was no successful pass for too long
}

// ObserveLoops adds the loop counters and the gauge of deferred rows. If the database cannot be
// read, the gauge keeps its last value.
func (m *Metrics) ObserveLoops(
	loops func() []LoopCount, deferred func(context.Context) (map[string]int64, error),
) error {
	var passes, failures metric.Int64ObservableCounter
	var late, rows metric.Int64ObservableGauge
	if err := newTotals(m.meter, []total{
		{&passes, "tasker.loop.passes.total", "Passes of this server's loops, good and bad."},
		{&failures, "tasker.loop.failures.total", "Passes of this server's loops that failed."},
	}); err != nil {
		return err
	}
	observed, err := newGauges(m.meter, []gauge{
		{&late, "tasker.loop.late", "1 while a loop of this server has made no good pass for too long or a pass runs longer than its timeout, else 0."},
		{&rows, "tasker.deferred.rows", "Deferred tasks and steps, whose work failed, by kind of work; at most 10000 are counted. The same on every server."},
	})
	if err != nil {
		return err
	}
	known := map[string]int64{} // kinds without rows stay, at 0
	return register(m.meter, "the loops", func(ctx context.Context, o metric.Observer) error {
		for _, l := range loops() {
			of := metric.WithAttributes(attribute.String("loop", l.Name))
			o.ObserveInt64(passes, l.Passes, of)
			o.ObserveInt64(failures, l.Failed, of)
			isLate := int64(0)
			if l.Late {
				isLate = 1
			}
			o.ObserveInt64(late, isLate, of)
		}
		ctx, cancel := context.WithTimeout(ctx, m.databaseTimeout())
		defer cancel()
		counts, err := deferred(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		if err != nil {
			m.log.WarnContext(ctx, "could not count deferred rows; the metric keeps its last value", "err", err)
		} else {
			for kind := range known {
				known[kind] = 0
			}
			maps.Copy(known, counts)
		}
		for kind, n := range known {
			o.ObserveInt64(rows, n, metric.WithAttributes(attribute.String("kind", kind)))
		}
		return nil
	}, append(observed, passes, failures)...)
}

// ObserveDue adds the gauge of overdue timed work by kind. If it cannot be read, the gauge keeps
// its last values.
func (m *Metrics) ObserveDue(read func(context.Context) (map[string]float64, error)) error {
	const name = "tasker.due.late_seconds"
	late, err := m.meter.Float64ObservableGauge(name, metric.WithDescription("For how long the work of a kind is overdue that is due for longest, by the clock; 0 if none is. The same in every server."))
	if err != nil {
		return fmt.Errorf("metric %s: %w", name, err)
	}
	known := map[string]float64{}
	return register(m.meter, "due work", func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, m.databaseTimeout())
		defer cancel()
		found, err := read(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		if err != nil {
			m.log.WarnContext(ctx, "could not read how late work is; the metric keeps its last value", "err", err)
		} else {
			maps.Copy(known, found)
		}
		for kind, seconds := range known {
			o.ObserveFloat64(late, seconds, metric.WithAttributes(attribute.String("kind", kind)))
		}
		return nil
	}, late)
}

// ObserveTemplates adds the gauge of template files that this server did not register.
func (m *Metrics) ObserveTemplates(broken int64) error {
	var files metric.Int64ObservableGauge
	observed, err := newGauges(m.meter, []gauge{
		{&files, "tasker.templates.broken", "Template files that this server did not register at its start, because something is wrong with them."},
	})
	if err != nil {
		return err
	}
	return register(m.meter, "the templates", func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(files, broken)
		return nil
	}, observed...)
}
