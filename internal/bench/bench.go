// Package bench measures the engine against plain PostgreSQL, in one run on one
// machine: what a figure means is its ratio to the baseline beside it.
//
// It starts a private, durable PostgreSQL in a directory that it removes
// afterwards, unless it is given a server.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker"
	"tasker/internal/devpg"
	"tasker/internal/dlq"
	"tasker/internal/engine"
	"tasker/internal/postgres"
	"tasker/internal/schema"
)

// Options say how much is measured. The zero value is what the README reports.
type Options struct {
	DatabaseURL string // an empty database; a private server when empty
	Tasks       int    // to drain; 20 000 when 0
	Workflows   int    // of the latency; 200 when 0
	Out         io.Writer
}

// A Figure is one thing measured.
type Figure struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Versus string  `json:"versus,omitempty"` // the baseline it is compared with
	Ratio  float64 `json:"ratio,omitempty"`  // of value to the baseline
}

// Run measures everything and returns the figures in the order of measuring.
func Run(ctx context.Context, o Options) (figures []Figure, err error) {
	if o.Tasks == 0 {
		o.Tasks = 20_000
	}
	if o.Workflows == 0 {
		o.Workflows = 200
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.DatabaseURL == "" {
		stop, url, err := private(ctx, o.Out)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		o.DatabaseURL = url
	}
	b, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer b.db.Close()
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"plain PostgreSQL: commits", b.commits},
		{"plain PostgreSQL: a queue in one table", b.queue},
		{"latency in process", b.latencyInProcess},
		{"latency over HTTP", b.latencyHTTP},
		{"drain in process", b.drainInProcess},
		{"drain over HTTP", b.drainHTTP},
	} {
		start := time.Now()
		_, _ = fmt.Fprintf(o.Out, "measuring %s …", part.name)
		if err := part.run(ctx); err != nil {
			return b.figures, fmt.Errorf("%s: %w", part.name, err)
		}
		_, _ = fmt.Fprintf(o.Out, " %.1f s\n", time.Since(start).Seconds())
	}
	return b.figures, nil
}

// private starts a PostgreSQL for this run.
func private(ctx context.Context, out io.Writer) (stop func() error, url string, err error) {
	dir, err := os.MkdirTemp("", "tasker-bench-")
	if err != nil {
		return nil, "", err
	}
	pg, err := devpg.Start(ctx, devpg.Options{DataDir: dir})
	if err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(dir))
	}
	_, _ = fmt.Fprintf(out, "private PostgreSQL in %s, with fsync as in production\n", dir)
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return errors.Join(pg.Stop(ctx), os.RemoveAll(dir))
	}, pg.URL(), nil
}

// A bench is an engine on a database, and what was measured so far.
type bench struct {
	Options
	db      *postgres.DB
	engine  *engine.Engine
	dlq     *dlq.Service
	log     *slog.Logger
	figures []Figure
}

func open(ctx context.Context, o Options) (*bench, error) {
	conn, err := pgx.Connect(ctx, o.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	_, err = schema.Up(ctx, conn)
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return nil, err
	}
	db, err := postgres.Open(ctx, o.DatabaseURL, postgres.Options{StatementTimeout: time.Minute})
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	b := &bench{Options: o, db: db, engine: engine.New(db, engine.Options{Log: log}), dlq: dlq.New(db, dlq.Options{}), log: log}
	if err := b.register(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return b, nil
}

const space = "bench"

// register stores the templates that are measured: one step, and four in a row.
func (b *bench) register(ctx context.Context) error {
	step := func(name string, dependencies ...string) tasker.StepTemplate {
		return tasker.StepTemplate{
			Name: name, Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "work"}, Dependencies: dependencies, Retry: tasker.DefaultRetry(),
		}
	}
	for name, steps := range map[string][]tasker.StepTemplate{
		"single": {step("a")},
		"linear": {step("a"), step("b", "a"), step("c", "b"), step("d", "c")},
	} {
		t := tasker.Template{Namespace: space, Name: name, Version: "1.0.0", Steps: steps}
		if _, _, err := b.engine.RegisterTemplate(ctx, t, ""); err != nil {
			return err
		}
	}
	return nil
}

// add notes a figure, and its ratio to an earlier one.
func (b *bench) add(name string, value float64, unit, versus string) {
	f := Figure{Name: name, Value: value, Unit: unit, Versus: versus}
	for _, other := range b.figures {
		if other.Name == versus && other.Value != 0 {
			f.Ratio = value / other.Value
		}
	}
	b.figures = append(b.figures, f)
}

// quantile returns the value below which the share q of the durations lies, in ms.
func quantile(d []time.Duration, q float64) float64 {
	slices.Sort(d)
	return float64(d[int(q*float64(len(d)-1))].Microseconds()) / 1000
}
