package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"golang.org/x/sync/errgroup"
)

// dbosSettings are the settings of DBOS.
type dbosSettings struct {
	Workers int           `json:"worker_concurrency"`
	Conns   int           `json:"pool_connections"`
	Poll    time.Duration `json:"base_polling_interval_ns"`
}

const (
	dbosShare = 5 // drains of DBOS have a fifth of the workflows of the others
	dbosQueue = "bench"
	dbosFlow  = "workflow"

	dbosIdle   = "DBOS, linear-4, called"
	dbosCalled = "DBOS, linear-4, called by as many at once as there are places"
)

// A dbosRun is a DBOS instance with empty tables that has not been launched.
type dbosRun struct {
	ctx  dbos.Context
	call func(input int) error // runs a workflow with that many steps and waits for it
}

// withDBOS calls f with a DBOS instance and then shuts it down. Its workflow has as many steps as
// its input says.
func (r *race) withDBOS(ctx context.Context, f func(*dbosRun) error) (err error) {
	// Migrate first: DBOS does not migrate through an external pool.
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

// dbosWorkflow is a workflow with a number of empty steps.
func dbosWorkflow(ctx dbos.Context, steps int) (int, error) {
	for range steps {
		if _, err := dbos.RunAsStep(ctx, dbosStep); err != nil {
			return 0, err
		}
	}
	return steps, nil
}

func dbosStep(context.Context) (int, error) { return 0, nil }

// drainDBOS fills a queue with workflows, launches DBOS, and measures the time until the last
// workflow is stored as successful.
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

// callDBOS measures direct calls of workflows, as many concurrently as the queue has slots,
// including their creation.
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

// idleDBOS calls workflows one after another and waits for each result.
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

// dbosDone checks that DBOS executed the measured work.
func (r *race) dbosDone(ctx context.Context, workflows, steps int) error {
	var done, stored int
	err := r.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'),
		(SELECT count(*) FROM dbos.operation_outputs)`).Scan(&done, &stored)
	if err == nil && (done != workflows || stored != workflows*steps) {
		err = fmt.Errorf("%d of %d workflows succeeded, with %d results of steps", done, workflows, stored)
	}
	return err
}

// atOnce calls f a number of times, at most limit concurrently.
func atOnce(times, limit int, f func() error) error {
	var g errgroup.Group
	g.SetLimit(limit)
	for range times {
		g.Go(f)
	}
	return g.Wait()
}
