package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker/bench/internal/private"
)

const (
	steps    = 4           // per workflow
	warmUp   = 20          // workflows before the measurement
	patience = time.Minute // timeout of a run
)

// options configures the measurements and the libraries.
type options struct {
	Tasks      int             `json:"tasks"`
	Workflows  int             `json:"workflows"`
	Singles    int             `json:"singles"`
	Runs       int             `json:"runs"`
	CommitsFor time.Duration   `json:"-"`
	River      riverSettings   `json:"river"`
	DBOS       dbosSettings    `json:"dbos"`
	Durable    durableSettings `json:"durabletask"`
	Out        io.Writer       `json:"-"` // for progress messages
}

func (o options) check() error {
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"-tasks", o.Tasks},
		{"-workflows", o.Workflows},
		{"-singles", o.Singles},
		{"-runs", o.Runs},
		{"-river-workers", o.River.Workers},
		{"-river-conns", o.River.Conns},
		{"-dbos-workers", o.DBOS.Workers},
		{"-dbos-conns", o.DBOS.Conns},
		{"-durabletask-workers", o.Durable.Workers},
		{"-durabletask-conns", o.Durable.Conns},
	} {
		if n.value < 1 {
			return fmt.Errorf("%s %d: must be 1 or more", n.flag, n.value)
		}
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"-commits-for", o.CommitsFor},
		{"-dbos-poll", o.DBOS.Poll},
		{"-durabletask-poll", o.Durable.Poll},
	} {
		if d.value <= 0 {
			return fmt.Errorf("%s %s: must be more than 0", d.flag, d.value)
		}
	}
	return nil
}

// A race is a server with the measurements so far.
type race struct {
	options
	url    string
	pool   *pgxpool.Pool // for the plain statements
	report *report
}

// measure starts a private, durable PostgreSQL, runs all measurements and removes it.
func measure(ctx context.Context, o options) (_ *report, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	stop, url, err := private.Start(ctx, o.Out)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	pool, err := connect(ctx, url, rawConns)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	r := &race{options: o, url: url, pool: pool, report: newReport(o)}
	if err := r.describe(ctx); err != nil {
		return nil, err
	}
	if err := migrateRiver(ctx, pool); err != nil {
		return nil, fmt.Errorf("tables of River: %w", err)
	}
	return r.report, r.rounds(ctx)
}

// rounds runs everything once per round, so that other load on the machine affects all figures.
func (r *race) rounds(ctx context.Context) error {
	for round := range r.Runs {
		for _, part := range []struct {
			name string
			run  func(context.Context) error
		}{
			{"commits", r.commits},
			{"plain, one step", r.drainRaw(single)},
			{"plain, four steps", r.drainRaw(linear)},
			{"plain, four steps fused", r.drainRaw(fused)},
			{"plain, idle", r.idleRaw(linear)},
			{"plain, idle, fused", r.idleRaw(fused)},
			{"River, one step", r.riverDrain},
			{"River, four steps", r.riverChains(atomically)},
			{"River, four steps, not atomic", r.riverChains(loosely)},
			{"River, idle", r.riverIdle(atomically)},
			{"River, idle, not atomic", r.riverIdle(loosely)},
			{"DBOS, one step", r.drainDBOS("DBOS, one-step workflows, from a queue", "workflows/s", oneStepBound, r.Tasks, 1)},
			{"DBOS, four steps", r.drainDBOS("DBOS, linear-4, from a queue", "workflows/s", linearBound, r.Workflows, steps)},
			{"DBOS, four steps, called", r.callDBOS},
			{"DBOS, idle", r.idleDBOS},
			{"durabletask-go, one step", r.drainDurable("durabletask-go, one activity", "workflows/s", oneStepBound, r.Tasks, 1)},
			{"durabletask-go, four steps", r.drainDurable(durableOne, "workflows/s", linearBound, r.Workflows, steps)},
			{"durabletask-go, idle", r.idleDurable},
		} {
			start := time.Now()
			if err := part.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", part.name, err)
			}
			_, _ = fmt.Fprintf(r.Out, "run %d of %d: %-30s %5.1f s\n", round+1, r.Runs, part.name, time.Since(start).Seconds())
		}
	}
	return nil
}

// singles runs workflows one after another, and returns the durations without those of the warm-up.
func (r *race) singles(one func(n int) error) (took []time.Duration, err error) {
	for n := range warmUp + r.Singles {
		start := time.Now()
		if err := one(n); err != nil {
			return nil, err
		}
		if n >= warmUp {
			took = append(took, time.Since(start))
		}
	}
	return took, nil
}

// settled waits until the query finds no unfinished work.
func (r *race) settled(ctx context.Context, open string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		var left bool
		if err := r.pool.QueryRow(ctx, open).Scan(&left); err != nil || !left {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the last one to be completed: %w", ctx.Err())
		}
	}
}

// describe records the environment. It rejects a server that may lose committed transactions.
func (r *race) describe(ctx context.Context) error {
	for _, name := range []string{"server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size"} {
		var value string
		if err := r.pool.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return err
		}
		if (name == "fsync" || name == "synchronous_commit") && value != "on" {
			return fmt.Errorf("the server has %s=%s: only durable work is worth comparing", name, value)
		}
		r.report.Server = append(r.report.Server, fact{name, value})
	}
	return nil
}

// fresh updates the statistics of tables and writes a checkpoint, so that a run does not pay for
// the previous one.
func (r *race) fresh(ctx context.Context, tables ...string) error {
	for _, t := range tables {
		if _, err := r.pool.Exec(ctx, "VACUUM ANALYZE "+t); err != nil {
			return err
		}
	}
	_, err := r.pool.Exec(ctx, "CHECKPOINT")
	return err
}

// faults returns a logger for errors of a library.
func faults() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func connect(ctx context.Context, url string, conns int) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	c.MaxConns, c.MinConns = int32(conns), int32(conns)
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	// Open all connections now, not during a measurement.
	held := make([]*pgxpool.Conn, 0, conns)
	for len(held) < conns && err == nil {
		var one *pgxpool.Conn
		if one, err = pool.Acquire(ctx); err == nil {
			held = append(held, one)
		}
	}
	for _, one := range held {
		one.Release()
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	return pool, nil
}
