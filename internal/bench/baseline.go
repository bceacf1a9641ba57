package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Names of the baselines, which other figures are compared with.
const (
	commitMedian = "commit of one row, median"
	queueRate    = "claim and complete in batches, plain table"
)

const (
	commitsFor   = 3 * time.Second
	batchSize    = 100
	baselineJobs = 4 // connections at once, as many as the workers of the drain
)

// commits measures what one small durable transaction costs: nothing that is
// written on its own can be faster.
func (b *bench) commits(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, b.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, `CREATE TABLE IF NOT EXISTS public.commits (n bigint)`); err != nil {
		return err
	}
	var took []time.Duration
	for start := time.Now(); time.Since(start) < commitsFor; {
		one := time.Now()
		if _, err := conn.Exec(ctx, `INSERT INTO public.commits VALUES ($1)`, len(took)); err != nil {
			return err
		}
		took = append(took, time.Since(one))
	}
	b.add(commitMedian, quantile(took, 0.5), "ms", "")
	b.add("commits on one connection", float64(len(took))/commitsFor.Seconds(), "1/s", "")
	return nil
}

// queue measures the least that a queue in PostgreSQL can do: claim a batch of
// rows, then complete it; no history, no graph, no leases.
func (b *bench) queue(ctx context.Context) error {
	if _, err := b.db.Pool().Exec(ctx, `
		DROP TABLE IF EXISTS public.jobs;
		CREATE TABLE public.jobs (id bigint PRIMARY KEY, state text NOT NULL, done_at timestamptz) WITH (fillfactor = 85);
		CREATE INDEX ON public.jobs (id) WHERE state = 'ready';`, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if _, err := b.db.Pool().Exec(ctx, `INSERT INTO public.jobs SELECT n, 'ready' FROM generate_series(1, $1) n`, b.Tasks); err != nil {
		return err
	}
	if _, err := b.db.Pool().Exec(ctx, `VACUUM ANALYZE public.jobs`, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	var left atomic.Int64
	left.Store(int64(b.Tasks))
	errs := make([]error, baselineJobs)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for errs[i] == nil && left.Load() > 0 {
				var n int
				n, errs[i] = b.batch(ctx)
				left.Add(int64(-n))
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	b.add(queueRate, float64(b.Tasks)/took.Seconds(), "rows/s", "")
	return nil
}

func (b *bench) batch(ctx context.Context) (int, error) {
	rows, err := b.db.Pool().Query(ctx, `
		UPDATE public.jobs SET state = 'running'
		WHERE id IN (SELECT id FROM public.jobs WHERE state = 'ready' ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)
		RETURNING id`, batchSize)
	if err != nil {
		return 0, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	_, err = b.db.Pool().Exec(ctx, `UPDATE public.jobs SET state = 'done', done_at = now() WHERE id = ANY ($1)`, ids)
	return len(ids), err
}
