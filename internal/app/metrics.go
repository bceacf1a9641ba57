package app

import (
	"context"
	"log/slog"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/metrics"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/telemetry"
)

// measured exports the metrics of a running server.
type measured struct {
	*telemetry.Service
	log *slog.Logger
}

// startMetrics starts the export and the database metrics.
func startMetrics(ctx context.Context, o Options, db *postgres.DB, l *brokerLine) (measured, error) {
	m, err := telemetry.Start(ctx, telemetry.Options{
		Version: o.Version, Environment: o.Config.Server.Environment, Read: db.OpenEntries, Log: o.Log,
		Dispatch: metrics.Sources{Backlogs: db.Backlogs, Broker: l.metricSources(db)}, Emission: newSinkSource(o, db),
	})
	if err != nil {
		return measured{}, err
	}
	db.OnOpened(m.EntryCreated)
	return measured{Service: m, log: o.Log}, nil
}

func (p components) loopCounts() []metrics.LoopCount {
	var out []metrics.LoopCount
	for _, s := range p.loopStatuses() {
		out = append(out, metrics.LoopCount{Name: s.Name, Passes: s.Passes, Failed: s.Failed, Late: s.Late})
	}
	return out
}

// observe registers the metrics of the components.
func (m measured) observe(c config.Config, p components) error {
	var pace func() float64
	if c.Limits.PaceCreates {
		pace = p.engine.CreatePace
	}
	if err := m.ObserveRequests(p.requestCounts, pace); err != nil {
		return err
	}
	if err := m.ObserveOperations(func(ctx context.Context) (map[tasker.ItemState]int64, error) {
		return p.db.OpenItems(postgres.WithConnClass(ctx, postgres.Timers))
	}); err != nil {
		return err
	}
	if err := m.ObserveHolds(func(ctx context.Context) ([]tasker.HoldGroup, error) {
		return p.db.CountHolds(postgres.WithConnClass(ctx, postgres.Timers))
	}, p.holds.CountUnopened); err != nil {
		return err
	}
	if err := m.ObserveSchedules(func(ctx context.Context) (int64, error) {
		return p.db.FailingSchedules(postgres.WithConnClass(ctx, postgres.Timers))
	}); err != nil {
		return err
	}
	if err := m.ObserveDeadlines(func(ctx context.Context) (int64, error) {
		return p.db.CountOverdue(postgres.WithConnClass(ctx, postgres.Timers), tasker.MaxCountedOverdue)
	}); err != nil {
		return err
	}
	if err := m.ObserveTaskRequests(func(ctx context.Context) (int64, error) {
		return p.db.RefusedTaskRequests(postgres.WithConnClass(ctx, postgres.Timers))
	}); err != nil {
		return err
	}
	if err := m.ObserveStaleness(func(ctx context.Context) ([]tasker.StalenessCount, error) {
		return p.db.CountStaleness(postgres.WithConnClass(ctx, postgres.Timers), tasker.StalenessFilter{Limit: stalenessCount}, tasker.Stale, tasker.Warning)
	}); err != nil {
		return err
	}
	if err := m.ObserveDue(func(ctx context.Context) (map[string]float64, error) {
		return p.db.Overdue(postgres.WithConnClass(ctx, postgres.Timers))
	}); err != nil {
		return err
	}
	return m.ObserveLoops(p.loopCounts, deferredRows(p.db))
}

func (p components) requestCounts() []metrics.RequestCount {
	var out []metrics.RequestCount
	for _, c := range p.gate.Counts() {
		out = append(out, metrics.RequestCount{
			Class: string(c.Class), Running: c.Running, Waiting: c.Waiting, Served: c.Admitted,
			Refused: map[string]int64{"full": c.RejectedFull, "timeout": c.TimedOut, "caller": c.RejectedFairness, "rate": c.RejectedRate},
		})
	}
	return out
}

// Counting stops at this number of tasks per health and of deferred rows.
const stalenessCount, deferredCount = 10_000, 10_000

// deferredRows returns a function that counts deferred rows by kind of work.
func deferredRows(db *postgres.DB) func(context.Context) (map[string]int64, error) {
	return func(ctx context.Context) (map[string]int64, error) {
		list, err := db.DeferredCounts(postgres.WithConnClass(ctx, postgres.Timers), deferredCount)
		out := make(map[string]int64, len(list))
		for _, d := range list {
			out[d.Kind] = d.Rows
		}
		return out, err
	}
}

const lastMetrics = 5 * time.Second

// stop exports the remaining metrics. Errors are only logged.
func (m measured) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastMetrics)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		m.log.WarnContext(ctx, "final metrics export failed", "err", err)
	}
}
