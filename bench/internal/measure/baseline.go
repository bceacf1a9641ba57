package measure

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/bench/internal/figures"
)

// The baselines: the minimum work of PostgreSQL for a queue of steps with a history.
var (
	commitMedian = figure{name: "plain: commit of one row", unit: "ms"}
	rawOne       = figure{name: "plain: one-step tasks, claim and complete", unit: "steps/s"}
	rawLinear    = figure{name: "plain: linear-4, claim and complete", unit: "steps/s"}
	rawFused     = figure{name: "plain: linear-4, complete and claim next in one statement", unit: "steps/s"}
	rawIdle      = figure{name: "plain: linear-4 alone, claim and complete", unit: "ms"}
	rawIdleFused = figure{name: "plain: linear-4 alone, complete and claim next in one statement", unit: "ms"}
)

const (
	batchSize    = 100
	baselineJobs = 4 // concurrent connections, as many as workers of a drain
)

// The toy has the essentials of a queue of steps: states, an order, and a history row for each
// change. It has no leases, retries or results.
const toySchema = `
DROP TABLE IF EXISTS public.toy_steps, public.toy_history;
CREATE TABLE public.toy_steps (id bigint PRIMARY KEY, next bigint, state text NOT NULL, since timestamptz NOT NULL) WITH (fillfactor = 85);
CREATE INDEX ON public.toy_steps (id) WHERE state = 'ready';
CREATE TABLE public.toy_history (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, step bigint NOT NULL,
	from_state text NOT NULL, to_state text NOT NULL, at timestamptz NOT NULL DEFAULT now()
);`

// toyCreate creates $2 tasks of $3 sequential steps. The first one has the id $1.
const toyCreate = `
INSERT INTO public.toy_steps
SELECT $1::bigint + n, CASE WHEN n % $3::bigint < $3 - 1 THEN $1 + n + 1 END, CASE WHEN n % $3 = 0 THEN 'ready' ELSE 'pending' END, now()
FROM generate_series(0, $2::bigint * $3 - 1) n`

const toyClaim = `
WITH picked AS (SELECT id FROM public.toy_steps WHERE state = 'ready' ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED),
claimed AS (UPDATE public.toy_steps s SET state = 'running', since = now() FROM picked p WHERE s.id = p.id RETURNING s.id),
history AS (INSERT INTO public.toy_history (step, from_state, to_state) SELECT id, 'ready', 'running' FROM claimed)
SELECT id FROM claimed`

// toyComplete completes the steps $1 and makes their successors ready.
const toyComplete = `
WITH completed AS (UPDATE public.toy_steps SET state = 'done', since = now() WHERE id = ANY ($1) AND state = 'running' RETURNING id, next),
opened AS (UPDATE public.toy_steps s SET state = 'ready', since = now() FROM completed c WHERE s.id = c.next RETURNING s.id),
history AS (
	INSERT INTO public.toy_history (step, from_state, to_state)
	SELECT id, 'running', 'done' FROM completed
	UNION ALL SELECT id, 'pending', 'ready' FROM opened
)
SELECT id FROM completed`

// toyHandOver completes the steps $1 and claims up to $2 steps, their successors first.
const toyHandOver = `
WITH completed AS (UPDATE public.toy_steps SET state = 'done', since = now() WHERE id = ANY ($1) AND state = 'running' RETURNING id, next),
opened AS (UPDATE public.toy_steps s SET state = 'running', since = now() FROM completed c WHERE s.id = c.next RETURNING s.id),
picked AS (
	SELECT id FROM public.toy_steps WHERE state = 'ready' ORDER BY id
	LIMIT greatest($2 - (SELECT count(*) FROM opened), 0) FOR UPDATE SKIP LOCKED
),
claimed AS (UPDATE public.toy_steps s SET state = 'running', since = now() FROM picked p WHERE s.id = p.id RETURNING s.id),
history AS (
	INSERT INTO public.toy_history (step, from_state, to_state)
	SELECT id, 'running', 'done' FROM completed
	UNION ALL SELECT id, 'pending', 'ready' FROM opened
	UNION ALL SELECT id, 'ready', 'running' FROM opened
	UNION ALL SELECT id, 'ready', 'running' FROM claimed
)
SELECT id FROM opened UNION ALL SELECT id FROM claimed`

// commits measures a small durable transaction, which is a lower bound for any single write.
func (b *bench) commits(ctx context.Context) error {
	for range b.Runs {
		took, err := b.commit(ctx, b.Single*2)
		if err != nil {
			return err
		}
		b.note(commitMedian, figures.Quantile(took, 0.5))
	}
	return nil
}

// commit commits n rows one by one on a connection.
func (b *bench) commit(ctx context.Context, n int) ([]time.Duration, error) {
	conn, err := b.db.Pool().Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, `CREATE TABLE IF NOT EXISTS public.commits (n bigint)`); err != nil {
		return nil, err
	}
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		if _, err := conn.Exec(ctx, `INSERT INTO public.commits VALUES ($1)`, i); err != nil {
			return nil, err
		}
		took[i] = time.Since(start)
	}
	return took, nil
}

// raw measures how fast the toy drains tasks with a number of sequential steps.
func (b *bench) raw(ctx context.Context, f figure, tasks, steps int) error {
	if _, err := b.db.Pool().Exec(ctx, toySchema, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if _, err := b.db.Pool().Exec(ctx, toyCreate, 1, tasks, steps); err != nil {
		return err
	}
	for _, sql := range []string{`VACUUM ANALYZE public.toy_steps`, `CHECKPOINT`} {
		if _, err := b.db.Pool().Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	t := &toy{bench: b}
	t.left.Store(int64(tasks * steps))
	drain := t.twoStatements
	if f == rawFused {
		drain = t.handOver
	}
	start := time.Now()
	if err := atOnce(baselineJobs, func(int) error { return drain(ctx) }); err != nil {
		return err
	}
	took := time.Since(start)
	if n := t.left.Load(); n != 0 {
		return fmt.Errorf("%s: %d steps were left", f.name, n)
	}
	b.note(f, float64(tasks*steps)/took.Seconds())
	return nil
}

// A toy is a drain of toy steps.
type toy struct {
	*bench
	left atomic.Int64
}

func (t *toy) twoStatements(ctx context.Context) error {
	for t.left.Load() > 0 {
		ids, err := t.ids(ctx, toyClaim, batchSize)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			if err := rest(ctx, time.Millisecond); err != nil { // other connections hold the remaining steps
				return err
			}
			continue
		}
		done, err := t.ids(ctx, toyComplete, ids)
		if err != nil {
			return err
		}
		t.left.Add(int64(-len(done)))
	}
	return nil
}

func (t *toy) handOver(ctx context.Context) error {
	ids, err := t.ids(ctx, toyClaim, batchSize)
	for err == nil && len(ids) > 0 {
		n := len(ids)
		if ids, err = t.ids(ctx, toyHandOver, ids, batchSize); err == nil {
			t.left.Add(int64(-n))
		}
	}
	return err
}

func (b *bench) ids(ctx context.Context, sql string, args ...any) ([]int64, error) {
	rows, err := b.db.Pool().Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// rawAlone measures toy workflows of four steps, one after another, from the creation to the
// completion of the last step.
func (b *bench) rawAlone(ctx context.Context, f figure) error {
	if _, err := b.db.Pool().Exec(ctx, toySchema, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	took := make([]time.Duration, b.Single)
	for i := range took {
		start := time.Now()
		if _, err := b.db.Pool().Exec(ctx, toyCreate, 4*i, 1, 4); err != nil {
			return err
		}
		t := &toy{bench: b}
		t.left.Store(4)
		drain := t.twoStatements
		if f == rawIdleFused {
			drain = t.handOver
		}
		if err := drain(ctx); err != nil {
			return err
		}
		took[i] = time.Since(start)
	}
	b.note(f, figures.Quantile(took, 0.5))
	return nil
}

// rest waits for d. It returns an error if ctx ends.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// atOnce runs f n times concurrently and returns the first error.
func atOnce(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
