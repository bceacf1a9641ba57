package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"golang.org/x/sync/errgroup"
)

// dbosSettings are what DBOS is tuned with.
type dbosSettings struct {
	Workers int           `json:"worker_concurrency"`
	Conns   int           `json:"pool_connections"`
	Poll    time.Duration `json:"base_polling_interval_ns"`
}

const (
	dbosShare = 5 // a drain of DBOS has one in so many of the workflows of the others
	dbosQueue = "bench"
	dbosFlow  = "workflow"

	dbosIdle   = "DBOS, linear-4, called"
	dbosCalled = "DBOS, linear-4, called by as many at once as there are places"
)

// A dbosRun is a DBOS on empty tables. It has not been launched.
type dbosRun struct {
	ctx  dbos.Context
	call func(input int) error // runs a workflow of so many steps, and waits for it
}

// withDBOS calls f with a DBOS that has one workflow, of as many steps as its
// input says, and shuts it down then.
func (r *race) withDBOS(ctx context.Context, f func(*dbosRun) error) (err error) {
	// Its tables come before its pool: DBOS does not migrate over a pool of others.
	if err := dbos.Migrate(ctx, r.url, dbos.WithMigrateLogger(faults())); err != nil {
		return fmt.Errorf("tables of DBOS: %w", err)
	}
	if _, err := r.pool.Exec(ctx, "TRUNCATE dbos.workflow_status, dbos.operation_outputs CASCADE"); err != nil {
		return err
	}
	pool, err := connect(ctx, r.url, r.DBOS.Conns)
	if err != nil {
		return err
	}
	defer pool.Close()
	run := new(dbosRun)
	run.ctx, err = dbos.NewContext(ctx, dbos.Config{AppName: "bench", ApplicationVersion: "1", ExecutorID: "bench", SystemDBPool: pool, Logger: faults()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dbos.Shutdown(run.ctx, patience)) }()
	dbos.RegisterWorkflow(run.ctx, dbosWorkflow, dbos.WithWorkflowName(dbosFlow))
	run.call = func(input int) error {
		h, err := dbos.RunWorkflow(run.ctx, dbosWorkflow, input)
		if err != nil {
			return err
		}
		_, err = h.GetResult()
		return err
	}
	return f(run)
}

// dbosWorkflow is a workflow of so many steps, which do nothing.
func dbosWorkflow(ctx dbos.Context, steps int) (int, error) {
	for range steps {
		if _, err := dbos.RunAsStep(ctx, dbosStep); err != nil {
			return 0, err
		}
	}
	return steps, nil
}

func dbosStep(context.Context) (int, error) { return 0, nil }

// drainDBOS fills a queue with workflows, launches DBOS, and measures until it
// has stored that the last one has succeeded.
func (r *race) drainDBOS(name, unit, versus string, workflows, steps int) func(context.Context) error {
	workflows = max(1, workflows/dbosShare)
	return func(ctx context.Context) error {
		return r.withDBOS(ctx, func(run *dbosRun) error {
			_, err := dbos.RegisterQueue(run.ctx, dbosQueue, dbos.WithWorkerConcurrency(r.DBOS.Workers), dbos.WithQueueBasePollingInterval(r.DBOS.Poll),
				dbos.WithQueueOnConflict(dbos.QueueConflictAlwaysUpdate))
			if err != nil {
				return err
			}
			err = atOnce(workflows, r.DBOS.Conns, func() error {
				_, err := dbos.Enqueue[int](run.ctx, dbosQueue, dbosFlow, steps)
				return err
			})
			if err != nil {
				return err
			}
			if err := r.fresh(ctx, "dbos.workflow_status", "dbos.operation_outputs"); err != nil {
				return err
			}
			start := time.Now()
			if err := dbos.Launch(run.ctx); err != nil {
				return err
			}
			if err := r.settled(ctx, `SELECT EXISTS (SELECT FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING', 'DELAYED'))`); err != nil {
				return err
			}
			r.report.addScaled(name, unit, float64(workflows)/time.Since(start).Seconds(), versus, float64(steps))
			return r.dbosDone(ctx, workflows, steps)
		})
	}
}

// callDBOS measures workflows that are not enqueued: their caller waits for
// them, as many at once as the queue has places. What creates them is included.
func (r *race) callDBOS(ctx context.Context) error {
	workflows := max(1, r.Workflows/dbosShare)
	return r.withDBOS(ctx, func(run *dbosRun) error {
		if err := dbos.Launch(run.ctx); err != nil {
			return err
		}
		start := time.Now()
		if err := atOnce(workflows, r.DBOS.Workers, func() error { return run.call(steps) }); err != nil {
			return err
		}
		r.report.addScaled(dbosCalled, "workflows/s", float64(workflows)/time.Since(start).Seconds(), linearBound, steps)
		return r.dbosDone(ctx, workflows, steps)
	})
}

// idleDBOS calls workflows one after another, until each has its result.
func (r *race) idleDBOS(ctx context.Context) error {
	return r.withDBOS(ctx, func(run *dbosRun) error {
		if err := dbos.Launch(run.ctx); err != nil {
			return err
		}
		took, err := r.singles(func(int) error { return run.call(steps) })
		if err != nil {
			return err
		}
		r.report.quantiles(dbosIdle, took)
		return r.dbosDone(ctx, warmUp+r.Singles, steps)
	})
}

// dbosDone makes sure that DBOS did what was timed.
func (r *race) dbosDone(ctx context.Context, workflows, steps int) error {
	var done, stored int
	err := r.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'),
		(SELECT count(*) FROM dbos.operation_outputs)`).Scan(&done, &stored)
	if err == nil && (done != workflows || stored != workflows*steps) {
		err = fmt.Errorf("%d of %d workflows succeeded, with %d results of steps", done, workflows, stored)
	}
	return err
}

// atOnce calls f so many times, limit of them at a time.
func atOnce(times, limit int, f func() error) error {
	var g errgroup.Group
	g.SetLimit(limit)
	for range times {
		g.Go(f)
	}
	return g.Wait()
}
