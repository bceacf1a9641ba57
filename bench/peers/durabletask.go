package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/microsoft/durabletask-go/api"
	"github.com/microsoft/durabletask-go/backend"
	"github.com/microsoft/durabletask-go/backend/postgres"
	"github.com/microsoft/durabletask-go/task"
)

// durableSettings are the settings of durabletask-go.
type durableSettings struct {
	Workers int           `json:"max_parallel_work_items"`
	Conns   int           `json:"pool_connections"`
	Poll    time.Duration `json:"poll_interval_ns"`
}

const (
	durableShare = 20 // drains of durabletask-go have a twentieth of the workflows of the others
	durableFlow  = "workflow"
	durableStep  = "step"
	durableOne   = "durabletask-go, linear-4"
	durableOpen  = `SELECT EXISTS (SELECT FROM instances WHERE completedtime IS NULL)`
)

// A durableRun is a client of durabletask-go with empty tables and workers that have not been
// started.
type durableRun struct {
	client  backend.TaskHubClient
	workers []backend.TaskWorker
	poll    time.Duration
}

// errorsOnly logs errors of durabletask-go.
type errorsOnly struct{ log *slog.Logger }

func (errorsOnly) Debug(...any)          {}
func (errorsOnly) Debugf(string, ...any) {}
func (errorsOnly) Info(...any)           {}
func (errorsOnly) Infof(string, ...any)  {}
func (errorsOnly) Warn(...any)           {}
func (errorsOnly) Warnf(string, ...any)  {}

func (l errorsOnly) Error(v ...any) { l.log.Error("fault of durabletask-go", "text", fmt.Sprint(v...)) }
func (l errorsOnly) Errorf(format string, v ...any) {
	l.log.Error("fault of durabletask-go", "text", fmt.Sprintf(format, v...))
}

// withDurable calls f with a task hub. Its orchestration has as many activities as its input says.
func (r *race) withDurable(ctx context.Context, f func(*durableRun) error) (err error) {
	conf, err := pgxpool.ParseConfig(r.url)
	if err != nil {
		return err
	}
	conf.MaxConns, conf.MinConns = int32(r.Durable.Conns), int32(r.Durable.Conns)
	quiet := errorsOnly{faults()}
	hub := postgres.NewPostgresBackend(&postgres.PostgresOptions{PgOptions: conf, OrchestrationLockTimeout: patience, ActivityLockTimeout: patience}, quiet)
	if err := hub.CreateTaskHub(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hub.DeleteTaskHub(context.WithoutCancel(ctx))) }()
	registry := task.NewTaskRegistry()
	err = errors.Join(registry.AddOrchestratorN(durableFlow, durableWorkflow),
		registry.AddActivityN(durableStep, func(task.ActivityContext) (any, error) { return 0, nil }))
	if err != nil {
		return err
	}
	executor := task.NewTaskExecutor(registry)
	places := backend.WithMaxParallelism(int32(r.Durable.Workers))
	return f(&durableRun{client: backend.NewTaskHubClient(hub), poll: r.Durable.Poll, workers: []backend.TaskWorker{
		backend.NewOrchestrationWorker(hub, executor, quiet, places),
		backend.NewActivityTaskWorker(hub, executor, quiet, places),
	}})
}

// durableWorkflow is an orchestration with a number of empty activities.
func durableWorkflow(ctx *task.OrchestrationContext) (any, error) {
	var steps int
	if err := ctx.GetInput(&steps); err != nil {
		return nil, err
	}
	for range steps {
		if err := ctx.CallActivity(durableStep).Await(nil); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// work makes the workers poll until f returns. Otherwise they would wait at least 50 ms after each
// empty poll, which is not configurable.
func (d *durableRun) work(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	failed := make([]error, len(d.workers))
	var wg sync.WaitGroup
	for i, w := range d.workers {
		wg.Go(func() { failed[i] = d.look(ctx, w) })
	}
	err := f()
	cancel()
	wg.Wait()
	for _, w := range d.workers {
		w.StopAndDrain()
	}
	return errors.Join(append(failed, err)...)
}

func (d *durableRun) look(ctx context.Context, w backend.TaskWorker) error {
	tick := time.NewTicker(d.poll)
	defer tick.Stop()
	for ctx.Err() == nil {
		found, err := w.ProcessNext(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if found {
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

func (d *durableRun) schedule(ctx context.Context, steps int) error {
	_, err := d.client.ScheduleNewOrchestration(ctx, durableFlow, api.WithInput(steps))
	return err
}

// drainDurable schedules orchestrations, starts the workers, and measures the time until the last
// one is stored as completed.
func (r *race) drainDurable(name, unit, versus string, workflows, steps int) func(context.Context) error {
	workflows = max(1, workflows/durableShare)
	return func(ctx context.Context) error {
		return r.withDurable(ctx, func(run *durableRun) error {
			if err := atOnce(workflows, r.Durable.Conns, func() error { return run.schedule(ctx, steps) }); err != nil {
				return err
			}
			if err := r.fresh(ctx, "instances", "newevents", "newtasks", "history"); err != nil {
				return err
			}
			start := time.Now()
			if err := run.work(ctx, func() error { return r.settled(ctx, durableOpen) }); err != nil {
				return err
			}
			r.report.addScaled(name, unit, float64(workflows)/time.Since(start).Seconds(), versus, float64(steps))
			return r.durableDone(ctx, workflows)
		})
	}
}

// idleDurable runs orchestrations one after another, from the scheduling call until each is stored
// as completed.
func (r *race) idleDurable(ctx context.Context) error {
	return r.withDurable(ctx, func(run *durableRun) error {
		var took []time.Duration
		err := run.work(ctx, func() (err error) {
			took, err = r.singles(func(int) error {
				if err := run.schedule(ctx, steps); err != nil {
					return err
				}
				return r.settled(ctx, durableOpen)
			})
			return err
		})
		if err != nil {
			return err
		}
		r.report.quantiles(durableOne, took)
		return r.durableDone(ctx, warmUp+r.Singles)
	})
}

// durableDone checks that durabletask-go executed the measured work.
func (r *race) durableDone(ctx context.Context, workflows int) error {
	var done int
	err := r.pool.QueryRow(ctx, `SELECT count(*) FROM instances WHERE runtimestatus = 'COMPLETED'`).Scan(&done)
	if err == nil && done != workflows {
		err = fmt.Errorf("%d of %d orchestrations are completed", done, workflows)
	}
	return err
}
