package measure

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The baselines for creating tasks.
var (
	commitRate     = figure{name: "plain: commits of one row, one connection", unit: "1/s"}
	commitRateMany = figure{name: "plain: commits of one row, 8 connections", unit: "1/s"}
	copyRate       = figure{name: "plain: COPY of the rows of 1 000 linear-4", unit: "tasks/s"}
)

// creators lists the numbers of concurrent creators and their baselines.
var creators = []struct {
	n        int
	baseline figure
}{{1, commitRate}, {8, commitRateMany}}

// bulks returns the number of bulk requests per run.
func (b *bench) bulks() int { return max(b.Workflows*2/bulk, 1) }

// creates measures how fast workflows of four steps are created.
func (b *bench) creates(ctx context.Context) error {
	return b.eachRun(ctx, func(p path) error {
		if p.name == inProcess {
			if err := b.createBaselines(ctx); err != nil {
				return err
			}
		}
		if err := b.reset(ctx); err != nil {
			return err
		}
		for _, c := range creators {
			start := time.Now()
			err := atOnce(c.n, func(int) error {
				for range b.Single {
					if err := p.create(ctx, linear, 1); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			name := fmt.Sprintf("linear-4 created one by one, by %d at once, %s", c.n, p.name)
			b.note(figure{name: name, unit: "tasks/s", baseline: c.baseline.name}, float64(c.n*b.Single)/time.Since(start).Seconds())
		}
		return b.createBulk(ctx, p)
	})
}

// createBulk measures a bulk request of maximum size and, in the same run, COPY of the same rows.
func (b *bench) createBulk(ctx context.Context, p path) error {
	if err := b.reset(ctx); err != nil {
		return err
	}
	if err := p.create(ctx, linear, bulk); err != nil { // warm the caches
		return err
	}
	if p.name == inProcess {
		if err := b.copySame(ctx); err != nil {
			return err
		}
	}
	start := time.Now()
	if err := p.create(ctx, linear, bulk*b.bulks()); err != nil {
		return err
	}
	rate := float64(bulk*b.bulks()) / time.Since(start).Seconds()
	b.note(figure{name: "linear-4 created 1 000 by a request, " + p.name, unit: "tasks/s", baseline: copyRate.name}, rate)
	return nil
}

func (b *bench) createBaselines(ctx context.Context) error {
	for _, c := range creators {
		start := time.Now()
		err := atOnce(c.n, func(int) error {
			_, err := b.commit(ctx, b.Single)
			return err
		})
		if err != nil {
			return err
		}
		b.note(c.baseline, float64(c.n*b.Single)/time.Since(start).Seconds())
	}
	return nil
}

// copySame measures COPY of the rows of one bulk into tables with the same columns and indexes, in
// one transaction.
func (b *bench) copySame(ctx context.Context) error {
	tables, err := b.tables(ctx, b.work, true)
	if err != nil {
		return err
	}
	conn, err := b.db.Pool().Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	rows := map[string][]byte{}
	for _, from := range tables {
		to := copyOf(from)
		sql := fmt.Sprintf(`DROP TABLE IF EXISTS %s; CREATE TABLE %s (LIKE %s INCLUDING INDEXES INCLUDING STORAGE)`, to, to, from)
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		var data bytes.Buffer
		if _, err := conn.Conn().PgConn().CopyTo(ctx, &data, `COPY `+from+` TO STDOUT (FORMAT binary)`); err != nil {
			return err
		}
		rows[to] = data.Bytes()
	}
	var took time.Duration
	for range b.bulks() {
		start := time.Now()
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			for to, data := range rows {
				if _, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(data), `COPY `+to+` FROM STDIN (FORMAT binary)`); err != nil {
					return err
				}
			}
			return nil
		})
		took += time.Since(start)
		if err != nil {
			return err
		}
		for to := range rows { // the keys repeat
			if _, err := conn.Exec(ctx, `TRUNCATE `+to, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
	}
	b.note(copyRate, float64(bulk*b.bulks())/took.Seconds())
	return nil
}

func copyOf(table string) string {
	_, name, _ := strings.Cut(table, ".")
	return "public.copy_of_" + name
}
