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

// Options say how large the database grows and what is in it. The zero
// value is what the documents report.
type Options struct {
	DatabaseURL string // an empty database, of a superuser if Plans; a private server when empty
	Sizes       []int  // live tasks, growing; 10 000, 100 000 and 1 000 000 when empty
	Due         int    // of the live tasks are past their threshold; 1 000 when 0
	Pending     int    // open investigations; 10 000 when 0
	Ended       int    // ended investigations, for the last figure; 100 000 when 0
	History     int    // so many times as many finished tasks and ended investigations come at the end; none when 0
	Runs        int    // of each batch and sweep, what only reads runs five times as often; 7 when 0
	Plans       bool   // report the plans at the last size as well
	Out         io.Writer
}

// A Report tells what grows with the database and what does not.
type Report struct {
	Sizes   []int    `json:"sizes"`
	Due     int      `json:"due"`
	Pending int      `json:"pending"`
	Ended   int      `json:"ended"`
	Figures []Figure `json:"figures"`
	Plans   []Plan   `json:"plans,omitempty"`
}

// A Figure is the cost of one thing at each size.
type Figure struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// A Point is a cost at one size: the median time, and the pages that were
// read from shared buffers or into them.
type Point struct {
	Tasks        int     `json:"tasks"`
	Finished     int     `json:"finished,omitempty"` // tasks besides
	Milliseconds float64 `json:"ms"`
	Buffers      int64   `json:"buffers"`
}

// The figures. Those of reads are of what the API answers.
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
	batchSize   = 100 // of the sweep, and of a pass
	pageSize    = 100 // of the lists
	manySteps   = 100
	readsPerRun = 5
)

// Run measures what the sweep and the reads of the triage cost while the
// database grows. What writes is rolled back, so it is measured without its
// commit, but for one figure.
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

// check refuses sizes that cannot be reached by growing.
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

// A scale is a database that grows: one connection has it grow, another is the
// product's, which is measured.
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
	// One connection: what was prepared on it is what is measured.
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

// measure measures everything at the size that the database has now.
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

// point notes a cost at the size that the database has now.
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

// product is the one connection of the product's pool.
func (s *scale) product(ctx context.Context, f func(*pgxpool.Conn) error) error {
	return s.db.Pool().AcquireFunc(ctx, f)
}
