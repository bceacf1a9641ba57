package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

// riverSettings are the settings of River.
type riverSettings struct {
	Workers  int           `json:"max_workers"`
	Conns    int           `json:"pool_connections"`
	Cooldown time.Duration `json:"fetch_cooldown_ns"`
	Poll     time.Duration `json:"fetch_poll_interval_ns"`
}

// riverStep is a job for a step of a workflow. Workflows have no other representation in the
// database.
type riverStep struct {
	Workflow int `json:"workflow"`
	Place    int `json:"place"`
	Steps    int `json:"steps"` // of the workflow
}

func (riverStep) Kind() string { return "step" }

// A riverBond determines how a step enqueues the next one.
type riverBond struct {
	name  string
	tight bool // completes the job and inserts the next one in one transaction
}

var (
	atomically = riverBond{"River, linear-4 as chained jobs, atomic", true}
	loosely    = riverBond{"River, linear-4 as chained jobs, not atomic", false}
)

// riverWorker does nothing except for inserting the next step of a workflow.
type riverWorker struct {
	river.WorkerDefaults[riverStep]
	pool *pgxpool.Pool
	bond riverBond
	last func() // called at the end of the last step of a workflow
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverStep]) error {
	next := job.Args
	next.Place++
	ends := next.Place == next.Steps
	if ends {
		defer w.last()
	}
	switch {
	case next.Steps == 1:
		return nil
	case w.bond.tight:
		return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
			if !ends {
				if _, err := river.ClientFromContext[pgx.Tx](ctx).InsertTx(ctx, tx, next, nil); err != nil {
					return err
				}
			}
			_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
			return err
		})
	case ends:
		return nil
	default:
		_, err := river.ClientFromContext[pgx.Tx](ctx).Insert(ctx, next, nil)
		return err
	}
}

// A riverRun is a client of River with empty tables.
type riverRun struct {
	client *river.Client[pgx.Tx]
	pool   *pgxpool.Pool
	failed chan error
}

func (r *riverRun) HandleError(_ context.Context, job *rivertype.JobRow, err error) *river.ErrorHandlerResult {
	r.fail(fmt.Errorf("job %d: %w", job.ID, err))
	return nil
}

func (r *riverRun) HandlePanic(_ context.Context, job *rivertype.JobRow, value any, _ string) *river.ErrorHandlerResult {
	r.fail(fmt.Errorf("job %d: panic: %v", job.ID, value))
	return nil
}

// fail records the first error, which invalidates the run.
func (r *riverRun) fail(err error) {
	select {
	case r.failed <- err:
	default:
	}
}

// await waits until done is closed or receives, or the run has failed.
func (r *riverRun) await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case err := <-r.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(patience):
		return fmt.Errorf("not done after %s", patience)
	}
}

func migrateRiver(ctx context.Context, pool *pgxpool.Pool) error {
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// withRiver calls f with a client that has not been started, and stops it afterwards.
func (r *race) withRiver(ctx context.Context, bond riverBond, last func(), f func(*riverRun) error) (err error) {
	if _, err := r.pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return err
	}
	pool, err := connect(ctx, r.url, r.River.Conns)
	if err != nil {
		return err
	}
	defer pool.Close()
	run := &riverRun{pool: pool, failed: make(chan error, 1)}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{pool: pool, bond: bond, last: last})
	run.client, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: r.River.Workers}},
		FetchCooldown:     r.River.Cooldown,
		FetchPollInterval: r.River.Poll,
		Workers:           workers,
		ErrorHandler:      run,
		Logger:            faults(),
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		err = errors.Join(err, run.client.Stop(ctx))
	}()
	return f(run)
}

// drainRiver fills the queue with the first steps of workflows, starts the workers, and returns the
// time until the last handler has ended and the time until River has stored the last job as
// completed.
func (r *race) drainRiver(ctx context.Context, bond riverBond, workflows, steps int) (handled, completed time.Duration, err error) {
	done := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(workflows))
	last := func() {
		if left.Add(-1) == 0 {
			close(done)
		}
	}
	err = r.withRiver(ctx, bond, last, func(run *riverRun) error {
		jobs := make([]river.InsertManyParams, workflows)
		for i := range jobs {
			jobs[i].Args = riverStep{Workflow: i, Steps: steps}
		}
		if _, err := run.client.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
		if err := r.fresh(ctx, "river_job"); err != nil {
			return err
		}
		start := time.Now()
		if err := run.client.Start(ctx); err != nil {
			return err
		}
		if err := run.await(ctx, done); err != nil {
			return err
		}
		handled = time.Since(start)
		if err := r.settled(ctx, riverOpen); err != nil {
			return err
		}
		completed = time.Since(start)
		return r.riverDone(ctx, workflows*steps)
	})
	return handled, completed, err
}

// riverOpen checks for unfinished jobs.
const riverOpen = `SELECT EXISTS (SELECT FROM river_job
	WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled'))`

// riverDone checks that River executed the measured work.
func (r *race) riverDone(ctx context.Context, total int) error {
	var done int
	err := r.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed' AND attempt = 1").Scan(&done)
	if err == nil && done != total {
		err = fmt.Errorf("%d of %d jobs are completed at their first attempt", done, total)
	}
	return err
}

func (r *race) riverDrain(ctx context.Context) error {
	handled, completed, err := r.drainRiver(ctx, loosely, r.Tasks, 1)
	if err != nil {
		return err
	}
	r.report.add("River, one-step jobs", "jobs/s", float64(r.Tasks)/completed.Seconds(), oneStepBound)
	r.report.add("River, one-step jobs, until the last handler", "jobs/s", float64(r.Tasks)/handled.Seconds(), oneStepBound)
	return nil
}

func (r *race) riverChains(bond riverBond) func(context.Context) error {
	return func(ctx context.Context) error {
		_, completed, err := r.drainRiver(ctx, bond, r.Workflows, steps)
		if err != nil {
			return err
		}
		// The bound counts steps, so the ratio does too.
		r.report.addScaled(bond.name, "workflows/s", float64(r.Workflows)/completed.Seconds(), linearBound, steps)
		return nil
	}
}

// riverIdle runs workflows one after another, from the insertion of the first job to the end of the
// last handler. With a tight bond the last job is then completed; otherwise River stores that up to
// 250 ms later.
func (r *race) riverIdle(bond riverBond) func(context.Context) error {
	return func(ctx context.Context) error { return r.idleRiver(ctx, bond) }
}

func (r *race) idleRiver(ctx context.Context, bond riverBond) error {
	ended := make(chan struct{}, 1)
	return r.withRiver(ctx, bond, func() { ended <- struct{}{} }, func(run *riverRun) error {
		if err := run.client.Start(ctx); err != nil {
			return err
		}
		took, err := r.singles(func(n int) error {
			if _, err := run.client.Insert(ctx, riverStep{Workflow: n, Steps: steps}, nil); err != nil {
				return err
			}
			return run.await(ctx, ended)
		})
		if err != nil {
			return err
		}
		if err := r.settled(ctx, riverOpen); err != nil {
			return err
		}
		r.report.quantiles(bond.name, took)
		return r.riverDone(ctx, (warmUp+r.Singles)*steps)
	})
}
