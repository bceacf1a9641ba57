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

// measured is the metrics of a server that is running.
type measured struct {
	*telemetry.Service
	log *slog.Logger
}

// startMetrics counts what the database is told to do here.
func startMetrics(ctx context.Context, o Options, db *postgres.DB, l *line) (measured, error) {
	m, err := telemetry.Start(ctx, telemetry.Options{
		Version: o.Version, Environment: o.Config.Server.Environment, Read: db.OpenEntries, Log: o.Log,
		Dispatch: metrics.Sources{Backlogs: db.Backlogs, Broker: l.sources(db)}, Emission: sinkSource(o, db),
	})
	if err != nil {
		return measured{}, err
	}
	db.OnOpened(m.EntryCreated)
	return measured{Service: m, log: o.Log}, nil
}

// loopCounts is what the loops have done.
func (p parts) loopCounts() []metrics.LoopCount {
	var out []metrics.LoopCount
	for _, s := range p.statuses() {
		out = append(out, metrics.LoopCount{Name: s.Name, Passes: s.Passes, Failed: s.Failed, Late: s.Late})
	}
	return out
}

// observe counts what the parts of a server do.
func (m measured) observe(c config.Config, p parts) error {
	var pace func() float64
	if c.Limits.PaceCreates {
		pace = p.engine.PaceOfCreates
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
	}, p.holds.Unopened); err != nil {
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

// requestCounts is the requests of each class.
func (p parts) requestCounts() []metrics.RequestCount {
	var out []metrics.RequestCount
	for _, c := range p.gate.Counts() {
		out = append(out, metrics.RequestCount{
			Class: string(c.Class), Running: c.Running, Waiting: c.Waiting, Served: c.Admitted,
			Refused: map[string]int64{"full": c.RejectedFull, "timeout": c.TimedOut, "caller": c.RejectedFairness, "rate": c.RejectedRate},
		})
	}
	return out
}

// stalenessCount is the number of tasks of each health at which counting stops.
const stalenessCount = 10_000

// deferredCount is how many rows that were set aside are counted.
const deferredCount = 10_000

// deferredRows reads how many rows are set aside, by the kind of work.
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

// stop sends what is left. That nobody takes it is no reason for a server to fail.
func (m measured) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastMetrics)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		m.log.WarnContext(ctx, "metrics were lost at the end", "err", err)
	}
}
