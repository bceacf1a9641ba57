package app

import (
	"context"
	"log/slog"
	"time"

	"tasker/internal/postgres"
	"tasker/internal/telemetry"
)

// measured is the metrics of a server that is running.
type measured struct {
	*telemetry.Service
	log *slog.Logger
}

// startMetrics counts what the database is told to do here.
func startMetrics(ctx context.Context, o Options, db *postgres.DB) (measured, error) {
	m, err := telemetry.Start(ctx, telemetry.Options{
		Version: o.Version, Environment: o.Config.Server.Environment, Read: db.OpenEntries, Log: o.Log,
	})
	if err != nil {
		return measured{}, err
	}
	db.OnOpened(m.EntryCreated)
	return measured{Service: m, log: o.Log}, nil
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
