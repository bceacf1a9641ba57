package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/bench/internal/figures"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/worker"
)

// fillChunk is the maximum number of steps per statement of fillBacklog.
const fillChunk = 100_000

// fillBacklog stores one-step tasks with enqueued steps. Task n is in namespace n modulo $2.
const fillBacklog = `
WITH ids AS MATERIALIZED (
	SELECT n, tasker.uuid_generate_v7() AS task_uuid, tasker.uuid_generate_v7() AS step_uuid, 'ns' || n % $2 AS namespace, 'h' || (n / $2) % $2 AS handler
	FROM generate_series(1, $1::integer) n
),
tasks AS (
	INSERT INTO tasker.tasks (
		task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, context, correlation_id, created_at, updated_at
	)
	SELECT i.task_uuid, t.template_uuid, i.namespace, t.name, t.version, 'steps_in_process', now(), now() + interval '6 days', now() + interval '7 days',
		'{}', i.task_uuid, now(), now()
	FROM ids i
	JOIN tasker.task_templates t ON t.namespace = $3 AND t.name = $4
),
steps AS (
	INSERT INTO tasker.workflow_steps (
		task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids, parents_open,
		attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, expires_at, created_at, updated_at
	)
	SELECT task_uuid, step_uuid, 'a', 'standard', namespace, handler, 0, 'enqueued', now() + n * interval '1 microsecond', '{}', '{}', 0,
		1, 3, true, 'exponential', 1000, 60000, true, now() + interval '7 days', now(), now()
	FROM ids
	RETURNING namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at
)
INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at)
SELECT namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at FROM steps`

// backlog replaces all tasks by enqueued steps in queues × queues pairs of namespace and handler.
func (b *bench) backlog(ctx context.Context, steps, queues int) error {
	if err := b.reset(ctx); err != nil {
		return err
	}
	for left := steps; left > 0; left -= fillChunk {
		if _, err := b.db.Pool().Exec(ctx, fillBacklog, min(left, fillChunk), queues, space, single.name); err != nil {
			return fmt.Errorf("fill the backlog: %w", err)
		}
	}
	_, err := b.db.Pool().Exec(ctx, `VACUUM ANALYZE tasker.workflow_steps, tasker.ready_steps, tasker.tasks`, pgx.QueryExecModeSimpleProtocol)
	return err
}

// claims measures claims of a hundred steps and releases the steps.
func (b *bench) claims(ctx context.Context, spec tasker.WorkerSpec, f figure) error {
	r, err := b.engine.RegisterWorker(ctx, spec)
	if err != nil {
		return err
	}
	var took []time.Duration
	for range 10 {
		start := time.Now()
		list, err := b.engine.Claim(ctx, r.WorkerUUID, directBatch, 0)
		if err != nil {
			return err
		}
		took = append(took, time.Since(start))
		if len(list) == 0 {
			return errNothingClaimed
		}
		leases := make([]tasker.Lease, len(list))
		for i, a := range list {
			leases[i] = a.Lease()
		}
		if _, _, err := b.engine.Release(ctx, r.WorkerUUID, leases); err != nil {
			return err
		}
	}
	b.note(f, figures.Quantile(took, 0.5))
	return nil
}

// growingBacklog measures a claim with a growing number of enqueued steps.
func (b *bench) growingBacklog(ctx context.Context) error {
	name := func(n int) string { return fmt.Sprintf("claim of %d steps, %d enqueued", directBatch, n) }
	for _, n := range b.growth.Backlog {
		if err := b.backlog(ctx, n, 1); err != nil {
			return err
		}
		f := figure{name: name(n), unit: "ms", baseline: grown(name, n, b.growth.Backlog[0])}
		for range b.Runs {
			if err := b.claims(ctx, tasker.WorkerSpec{Name: "bench", Namespaces: []string{"ns0"}, Handlers: []string{"h0"}}, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// growingQueues measures a claim with a growing number of queues, by a worker of one queue and by a
// worker of all of them.
func (b *bench) growingQueues(ctx context.Context) error {
	n := b.growth.Namespaces
	if err := b.backlog(ctx, n*n, n); err != nil {
		return err
	}
	one := figure{name: "claim, one namespace × one handler of the worker", unit: "ms"}
	all := figure{name: fmt.Sprintf("claim, %d namespaces × %d handlers of the worker", n, n), unit: "ms", baseline: one.name}
	namespaces, handlers := make([]string, n), make([]string, n)
	for i := range n {
		namespaces[i], handlers[i] = fmt.Sprint("ns", i), fmt.Sprint("h", i)
	}
	for range b.Runs {
		if err := b.claims(ctx, tasker.WorkerSpec{Name: "bench", Namespaces: namespaces[:1], Handlers: handlers[:1]}, one); err != nil {
			return err
		}
		if err := b.claims(ctx, tasker.WorkerSpec{Name: "bench", Namespaces: namespaces, Handlers: handlers}, all); err != nil {
			return err
		}
	}
	return nil
}

// growingFleet measures the time from enqueueing to the claim with a growing number of waiting
// workers.
func (b *bench) growingFleet(ctx context.Context) error {
	name := func(n int) string { return fmt.Sprintf("from create to claim, %d workers wait", n) }
	for range b.Runs {
		for _, n := range b.growth.Waiting {
			took, err := b.waitingFleet(ctx, n)
			if err != nil {
				return err
			}
			b.note(figure{name: name(n), unit: "ms", baseline: grown(name, n, b.growth.Waiting[0])}, figures.Quantile(took, 0.5))
		}
	}
	return nil
}

func (b *bench) waitingFleet(ctx context.Context, workers int) ([]time.Duration, error) {
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	claimed := make(chan time.Time)
	errs := make([]error, workers)
	var fleet sync.WaitGroup
	for i := range workers {
		d, err := b.newDirect(ctx, space, "work")
		if err != nil {
			return nil, err
		}
		fleet.Go(func() { errs[i] = d.takeUntil(waiting, claimed) })
	}
	var took []time.Duration
	for range 20 {
		start := time.Now()
		if err := createIn(b.engine)(ctx, single, 1); err != nil {
			return nil, err
		}
		select {
		case at := <-claimed:
			took = append(took, at.Sub(start))
		case <-time.After(time.Minute):
			return nil, errNothingClaimed
		}
	}
	stop()
	fleet.Wait()
	return took, errors.Join(errs...)
}

// takeUntil claims and completes one step after another until ctx ends.
func (d *direct) takeUntil(ctx context.Context, claimed chan<- time.Time) error {
	for ctx.Err() == nil {
		list, err := d.engine.Claim(ctx, d.id, 1, 20*time.Second)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		if len(list) == 0 {
			continue
		}
		at := time.Now()
		if _, err := d.engine.Report(ctx, d.id, []tasker.Outcome{{Lease: list[0].Lease(), Success: true, Result: d.result}}, 0); err != nil {
			return err
		}
		select {
		case claimed <- at:
		case <-ctx.Done():
		}
	}
	return nil
}

// unlessEnded returns err unless ctx has ended.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the call was cancelled
	}
	return err
}

// openTransaction measures the drain of one-step tasks during a long transaction, which prevents
// PostgreSQL from removing dead rows.
func (b *bench) openTransaction(ctx context.Context) error {
	if err := b.reset(ctx); err != nil {
		return err
	}
	n := max(b.Tasks/10, 100)
	rate := func(f figure) error {
		if err := b.enqueue(ctx, b.direct(), single, n); err != nil {
			return err
		}
		took, err := b.empty(ctx, b.direct(), n)
		if err == nil {
			b.note(f, float64(n)/took.Seconds())
		}
		return err
	}
	alone := figure{name: "one-step tasks drained, no transaction open", unit: "steps/s"}
	for range b.Runs {
		if err := rate(alone); err != nil {
			return err
		}
	}
	conn, err := pgx.Connect(ctx, b.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()`, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	opened := time.Now()
	for i, half := range []string{"first", "second"} {
		f := figure{name: fmt.Sprintf("the same, %s half of a transaction of %v", half, b.growth.Hold), unit: "steps/s", baseline: alone.name}
		end := b.growth.Hold * time.Duration(i+1) / 2
		for first := true; first || time.Since(opened) < end; first = false {
			if err := rate(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// The workers that are distributed over the servers. They have as many slots as those of drains.
const (
	serverWorkers     = 16
	serverConcurrency = drainWorkers * drainConcurrency / serverWorkers
)

// growingServers measures the drain of one-step tasks by the same workers, distributed over a
// growing number of servers. A deadlock is an error.
func (b *bench) growingServers(ctx context.Context) error {
	name := func(n int) string {
		return fmt.Sprintf("one-step tasks drained by %d workers, %d servers", serverWorkers, n)
	}
	for range b.Runs {
		for _, n := range b.growth.Servers {
			rate, err := b.manyServers(ctx, n)
			if err != nil {
				return err
			}
			b.note(figure{name: name(n), unit: "steps/s", baseline: grown(name, n, b.growth.Servers[0])}, rate)
		}
	}
	return nil
}

func (b *bench) manyServers(ctx context.Context, n int) (rate float64, err error) {
	if err := b.fillQueue(ctx, b.direct(), single, b.Tasks); err != nil {
		return 0, err
	}
	before, err := b.deadlocks(ctx) // truncating the tables may cause one
	if err != nil {
		return 0, err
	}
	var servers []*engine.Engine
	var stops []func() error
	defer func() {
		for _, stop := range stops {
			err = errors.Join(err, stop())
		}
	}()
	for range n {
		e, stop, failed := b.startServer(ctx)
		if failed != nil {
			return 0, failed
		}
		servers, stops = append(servers, e), append(stops, stop)
	}
	var next atomic.Int64
	p := b.direct()
	p.own = func() worker.Backend { return servers[int(next.Add(1))%n] }
	took, err := b.emptyBy(ctx, p, b.Tasks, serverWorkers, serverConcurrency)
	if err != nil {
		return 0, err
	}
	after, err := b.deadlocks(ctx)
	if err == nil && after > before {
		err = fmt.Errorf("%d deadlocks", after-before)
	}
	return float64(b.Tasks) / took.Seconds(), err
}

// deadlocks returns the number of deadlocks in the database.
func (b *bench) deadlocks(ctx context.Context) (n int, err error) {
	err = b.db.Pool().QueryRow(ctx, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&n)
	return n, err
}

// startServer starts a server without HTTP API: an engine with its own connections, timers and
// notifications.
func (b *bench) startServer(ctx context.Context) (*engine.Engine, func() error, error) {
	db, err := postgres.Open(ctx, b.DatabaseURL, postgres.Options{ApplicationName: applicationName})
	if err != nil {
		return nil, nil, err
	}
	e := engine.New(db, engine.Options{Log: b.log})
	stop := runLoops(ctx, e)
	return e, func() error {
		defer db.Close()
		return stop()
	}, nil
}

// runLoops runs the loops of an engine until stop is called.
func runLoops(ctx context.Context, e *engine.Engine) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	group := loop.NewGroup(ctx)
	group.Go("listen", e.Listen)
	for _, l := range e.Loops() {
		group.Go(l.Name, l.Run)
	}
	return func() error {
		cancel()
		return group.Wait()
	}
}
