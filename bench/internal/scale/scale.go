// Package scale measures how the cost of the staleness sweep and of triage queries grows with the size
// of the database.
package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/bench/internal/figures"
	"tasker.example/tasker/bench/internal/private"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/schema"
)

// Options configures the sizes of the database. All fields are optional; the documents report the
// defaults.
type Options struct {
	DatabaseURL string // an empty database, for a superuser if Plans is set; default a private server
	Sizes       []int  // live tasks, ascending; default 10 000, 100 000 and 1 000 000
	Due         int    // live tasks past their threshold; default 1 000
	Pending     int    // open investigations; default 10 000
	Ended       int    // ended investigations, for the last figure; default 100 000
	History     int    // multiple of finished tasks and ended investigations at the end; default none
	Runs        int    // of each batch and sweep, and five times as many of reads; default 7
	Plans       bool   // report the plans at the last size
	Out         io.Writer
}

// A Report shows which costs grow with the database.
type Report struct {
	Sizes   []int    `json:"sizes"`
	Due     int      `json:"due"`
	Pending int      `json:"pending"`
	Ended   int      `json:"ended"`
	Figures []Figure `json:"figures"`
	Plans   []Plan   `json:"plans,omitempty"`
}

// A Figure is a cost at each size.
type Figure struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// A Point is a cost at one size: the median time and the accessed pages.
type Point struct {
	Tasks        int     `json:"tasks"`
	Finished     int     `json:"finished,omitempty"` // additional finished tasks
	Milliseconds float64 `json:"ms"`
	Buffers      int64   `json:"buffers"`
}

// Names of the figures. Reads are requests of the API.
const (
	quietSweep   = "the sweep with nothing due"
	sweepBatch   = "one batch of the sweep"
	wholeSweep   = "the sweep until nothing is due"
	sweepPass    = "the same, two batches at once, committed"
	queuePage    = "queue page"
	dueMonitor   = "staleness page, tasks due"
	quietMonitor = "staleness page, none due"
	stats        = "stats, open entries only"
	endedStats   = "stats, ended entries besides"
	taskPage     = "task list page, by state"
	stepList     = "step list, one task of 100 steps"
)

const (
	batchSize   = 100 // of the sweep
	pageSize    = 100 // of the lists
	manySteps   = 100
	readsPerRun = 5
)

// Run measures the sweep and the reads of triage while the database grows. Writes are rolled back
// and measured without commit, except for one figure.
func Run(ctx context.Context, o Options) (report Report, err error) {
	o.fill()
	if o.DatabaseURL == "" {
		var stop func() error
		if stop, o.DatabaseURL, err = private.Start(ctx, o.Out); err != nil {
			return Report{}, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	s, err := open(ctx, o)
	if err != nil {
		return Report{}, err
	}
	defer s.close(ctx)
	if err := s.run(ctx); err != nil {
		return Report{}, err
	}
	return s.report, nil
}

func (o *Options) fill() {
	if len(o.Sizes) == 0 {
		o.Sizes = []int{10_000, 100_000, 1_000_000}
	}
	for _, v := range []struct {
		option *int
		value  int
	}{{&o.Due, 1_000}, {&o.Pending, 10_000}, {&o.Ended, 100_000}, {&o.Runs, 7}} {
		if *v.option == 0 {
			*v.option = v.value
		}
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
}

// check returns an error for sizes that do not ascend.
func (o *Options) check() error {
	last := o.Due
	for _, n := range o.Sizes {
		if n < last {
			return fmt.Errorf("sizes: %d after %d: give sizes that grow, from %d, which are due", n, last, o.Due)
		}
		last = n
	}
	return nil
}

// A scale is a growing database, with one connection for growing it and one for the measured
// product.
type scale struct {
	Options
	filler *pgx.Conn
	db     *postgres.DB
	tasks  int       // live, now
	done   int       // finished, now
	large  tasker.ID // the task of 100 steps
	report Report
}

func open(ctx context.Context, o Options) (*scale, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, o.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if _, err := schema.Up(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	// A single connection, so that its prepared statements can be explained.
	db, err := postgres.Open(ctx, o.DatabaseURL, postgres.Options{MaxConns: 1, StatementTimeout: time.Minute})
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return &scale{
		Options: o, filler: conn, db: db,
		report: Report{Sizes: o.Sizes, Due: o.Due, Pending: o.Pending, Ended: o.Ended},
	}, nil
}

func (s *scale) close(ctx context.Context) {
	s.db.Close()
	_ = s.filler.Close(context.WithoutCancel(ctx))
}

func (s *scale) run(ctx context.Context) error {
	if err := s.timed("open investigations", func() error { return s.prepare(ctx) }); err != nil {
		return err
	}
	for _, n := range s.Sizes {
		if err := s.timed(fmt.Sprintf("growing to %d tasks", n), func() error { return s.grow(ctx, n) }); err != nil {
			return err
		}
		if err := s.measure(ctx); err != nil {
			return err
		}
	}
	if s.Plans {
		if err := s.timed("plans", func() error { return s.explainAll(ctx) }); err != nil {
			return err
		}
	}
	if err := s.timed(endedStats, func() error {
		if err := s.end(ctx); err != nil {
			return err
		}
		return s.read(ctx, endedStats)
	}); err != nil || s.History == 0 {
		return err
	}
	if err := s.timed(fmt.Sprintf("%d × as much history", s.History), func() error { return s.finish(ctx) }); err != nil {
		return err
	}
	return s.measure(ctx)
}

// measure measures everything at the current size.
func (s *scale) measure(ctx context.Context) error {
	for _, name := range []string{queuePage, stats, taskPage, stepList, quietMonitor, quietSweep} {
		if err := s.timed(name, func() error { return s.read(ctx, name) }); err != nil {
			return err
		}
	}
	if err := s.timed("tasks become due", func() error { return s.due(ctx) }); err != nil {
		return err
	}
	if err := s.timed(dueMonitor, func() error { return s.read(ctx, dueMonitor) }); err != nil {
		return err
	}
	if err := s.timed(sweepBatch, func() error { return s.sweep(ctx, sweepBatch, 1) }); err != nil {
		return err
	}
	if err := s.timed(wholeSweep, func() error { return s.sweep(ctx, wholeSweep, s.Due/batchSize+1) }); err != nil {
		return err
	}
	return s.timed(sweepPass, func() error { return s.pass(ctx) })
}

func (s *scale) timed(name string, f func() error) error {
	start := time.Now()
	_, _ = fmt.Fprintf(s.Out, "%8d tasks: %s …", s.tasks, name)
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, _ = fmt.Fprintf(s.Out, " %.1f s\n", time.Since(start).Seconds())
	return nil
}

// point records a cost at the current size.
func (s *scale) point(name string, took []time.Duration, buffers int64) {
	p := Point{Tasks: s.tasks, Finished: s.done, Milliseconds: figures.Quantile(took, 0.5), Buffers: buffers}
	for i := range s.report.Figures {
		if f := &s.report.Figures[i]; f.Name == name {
			f.Points = append(f.Points, p)
			return
		}
	}
	s.report.Figures = append(s.report.Figures, Figure{Name: name, Points: []Point{p}})
}

// product calls f with the only connection of the product's pool.
func (s *scale) product(ctx context.Context, f func(*pgxpool.Conn) error) error {
	return s.db.Pool().AcquireFunc(ctx, f)
}
