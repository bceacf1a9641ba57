package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker/bench/internal/figures"
)

const (
	rawConns  = 4   // concurrent connections
	batchSize = 100 // steps per statement
)

// rawTables is the minimum for sequential steps with a history. It has no leases, retries or
// results. The successor of step id is id+1.
const rawTables = `
	DROP TABLE IF EXISTS public.step, public.audit;
	CREATE TABLE public.step (id bigint PRIMARY KEY, place int NOT NULL, state text NOT NULL) WITH (fillfactor = 70);
	CREATE INDEX step_ready ON public.step (id) WHERE state = 'ready';
	CREATE TABLE public.audit (id bigint GENERATED ALWAYS AS IDENTITY, step bigint NOT NULL, state text NOT NULL,
		at timestamptz NOT NULL DEFAULT now());`

// Statements for these tables. Each state change writes a history row.
const (
	rawInsert = `
		WITH added AS (
			INSERT INTO public.step SELECT $1 + n, n % $3, CASE n % $3 WHEN 0 THEN 'ready' ELSE 'waiting' END
			FROM generate_series(0::bigint, $2 - 1) n RETURNING id, state)
		INSERT INTO public.audit (step, state) SELECT id, state FROM added`
	rawClaim = `
		WITH claimed AS (
			UPDATE public.step SET state = 'running' WHERE id IN (
				SELECT id FROM public.step WHERE state = 'ready' ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)
			RETURNING id, place),
		noted AS (INSERT INTO public.audit (step, state) SELECT id, 'running' FROM claimed)
		SELECT id, place FROM claimed`
	rawComplete = `
		WITH done AS (
			UPDATE public.step SET state = 'done' WHERE id = ANY ($1) AND state = 'running' RETURNING id, place),
		readied AS (
			UPDATE public.step SET state = 'ready' WHERE id IN (SELECT id + 1 FROM done WHERE place < $2 - 1) RETURNING id)
		INSERT INTO public.audit (step, state) SELECT id, 'done' FROM done UNION ALL SELECT id, 'ready' FROM readied`
	rawCompleteSingle = `
		WITH done AS (UPDATE public.step SET state = 'done' WHERE id = ANY ($1) AND state = 'running' RETURNING id)
		INSERT INTO public.audit (step, state) SELECT id, 'done' FROM done`
	// Successors of completed steps start at once; ready steps of other workflows fill the batch.
	rawFused = `
		WITH done AS (
			UPDATE public.step SET state = 'done' WHERE id = ANY ($1) AND state = 'running' RETURNING id, place),
		next AS (
			UPDATE public.step SET state = 'running' WHERE id IN (SELECT id + 1 FROM done WHERE place < $2 - 1) RETURNING id, place),
		filled AS (
			UPDATE public.step SET state = 'running' WHERE id IN (
				SELECT id FROM public.step WHERE state = 'ready' ORDER BY id
				LIMIT $3 - (SELECT count(*) FROM next) FOR UPDATE SKIP LOCKED)
			RETURNING id, place),
		claimed AS (SELECT * FROM next UNION ALL SELECT * FROM filled),
		noted AS (
			INSERT INTO public.audit (step, state) SELECT id, 'done' FROM done UNION ALL SELECT id, 'running' FROM claimed)
		SELECT id, place FROM claimed`
)

// A rawWay is a way to run steps with plain statements.
type rawWay struct {
	name  string
	steps int // per workflow
	fused bool
	unit  string
}

var (
	single = rawWay{"PostgreSQL, one-step rows, claim and complete", 1, false, "rows/s"}
	linear = rawWay{"PostgreSQL, linear-4, claim and complete", steps, false, "steps/s"}
	fused  = rawWay{"PostgreSQL, linear-4, complete and claim next in one", steps, true, "steps/s"}
)

// commits measures a small durable transaction, which is a lower bound for any single write.
func (r *race) commits(ctx context.Context) error {
	if _, err := r.pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS public.commits (n bigint)`); err != nil {
		return err
	}
	var took []time.Duration
	err := r.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		for start := time.Now(); time.Since(start) < r.CommitsFor; {
			one := time.Now()
			if _, err := conn.Exec(ctx, `INSERT INTO public.commits VALUES ($1)`, len(took)); err != nil {
				return err
			}
			took = append(took, time.Since(one))
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.report.add(commitMedian, "ms", figures.Quantile(took, 0.5), "")
	return nil
}

// drainRaw drains a full table with plain statements. Because that is fast, a run is the median of
// three drains.
func (r *race) drainRaw(way rawWay) func(context.Context) error {
	total, versus := r.Tasks, oneStepBound
	if way.steps > 1 {
		total, versus = r.Workflows*way.steps, linearBound
	}
	return func(ctx context.Context) error {
		var rates []float64
		for range 3 {
			took, err := r.drainOnce(ctx, way, total)
			if err != nil {
				return err
			}
			rates = append(rates, float64(total)/took.Seconds())
		}
		r.report.add(way.name, way.unit, figures.Median(rates), versus)
		return nil
	}
}

func (r *race) drainOnce(ctx context.Context, way rawWay, total int) (time.Duration, error) {
	if err := r.fill(ctx, total, way.steps); err != nil {
		return 0, err
	}
	var left atomic.Int64
	left.Store(int64(total))
	errs := make([]error, rawConns)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			errs[i] = r.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return way.drain(ctx, conn, &left) })
		})
	}
	wg.Wait()
	took := time.Since(start)
	return took, errors.Join(append(errs, r.allDone(ctx, total))...)
}

// fill creates the tables with steps.
func (r *race) fill(ctx context.Context, total, steps int) error {
	if _, err := r.pool.Exec(ctx, rawTables, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if _, err := r.pool.Exec(ctx, rawInsert, 0, total, steps); err != nil {
		return err
	}
	return r.fresh(ctx, "public.step", "public.audit")
}

// drain claims and completes batches until no steps remain.
func (w rawWay) drain(ctx context.Context, conn *pgxpool.Conn, left *atomic.Int64) error {
	var held []int64
	for left.Load() > 0 {
		next, err := w.turn(ctx, conn, held, batchSize)
		if err != nil {
			return err
		}
		left.Add(-int64(len(held)))
		if held = next; w.fused {
			continue
		}
		if _, err := w.turn(ctx, conn, held, 0); err != nil {
			return err
		}
		left.Add(-int64(len(held)))
		held = nil
	}
	return nil
}

// turn completes the held steps and claims up to limit others: in one statement if the way is
// fused, otherwise alternately.
func (w rawWay) turn(ctx context.Context, conn *pgxpool.Conn, held []int64, limit int) ([]int64, error) {
	var rows pgx.Rows
	var err error
	switch {
	case w.fused:
		if held == nil {
			held = []int64{}
		}
		rows, err = conn.Query(ctx, rawFused, held, w.steps, limit)
	case len(held) == 0 && limit == 0:
		return nil, nil
	case len(held) == 0:
		rows, err = conn.Query(ctx, rawClaim, limit)
	case w.steps == 1:
		_, err = conn.Exec(ctx, rawCompleteSingle, held)
		return nil, err
	default:
		_, err = conn.Exec(ctx, rawComplete, held, w.steps)
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (int64, error) {
		var id, place int64
		err := row.Scan(&id, &place)
		return id, err
	})
}

// allDone checks that the statements executed the measured work.
func (r *race) allDone(ctx context.Context, total int) error {
	var done, noted int
	if err := r.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM public.step WHERE state = 'done'),
		(SELECT count(*) FROM public.audit WHERE state = 'done')`).Scan(&done, &noted); err != nil {
		return err
	}
	if done != total || noted != total {
		return fmt.Errorf("%d of %d steps are done, with %d rows of history", done, total, noted)
	}
	return nil
}

// idleRaw runs workflows one after another on one connection, from the commit that creates one to
// the commit that completes its last step.
func (r *race) idleRaw(way rawWay) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := r.fill(ctx, way.steps, way.steps); err != nil {
			return err
		}
		if _, err := r.pool.Exec(ctx, `TRUNCATE public.step, public.audit`); err != nil {
			return err
		}
		var took []time.Duration
		err := r.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) (err error) {
			took, err = r.singles(func(n int) error { return way.one(ctx, conn, n*way.steps) })
			return err
		})
		if err != nil {
			return err
		}
		if err := r.allDone(ctx, (warmUp+r.Singles)*way.steps); err != nil {
			return err
		}
		r.report.add(idle(way.name), "ms", figures.Quantile(took, 0.5), idle(linear.name))
		return nil
	}
}

// one runs the workflow whose first step is id.
func (w rawWay) one(ctx context.Context, conn *pgxpool.Conn, id int) error {
	if _, err := conn.Exec(ctx, rawInsert, id, w.steps, w.steps); err != nil {
		return err
	}
	if w.fused {
		var held []int64
		for range w.steps + 1 {
			var err error
			if held, err = w.turn(ctx, conn, held, 1); err != nil {
				return err
			}
		}
		return nil
	}
	for range w.steps {
		held, err := w.turn(ctx, conn, nil, 1)
		if err != nil {
			return err
		}
		if _, err := w.turn(ctx, conn, held, 0); err != nil {
			return err
		}
	}
	return nil
}
