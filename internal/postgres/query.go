package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A querier runs statements, in a lane or a transaction, and translates errors.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// collect runs a query and reads its rows by column name.
func collect[T any](ctx context.Context, q querier, sql string, args ...any) ([]T, error) {
	return read(ctx, q, pgx.RowToStructByName[T], sql, args)
}

// column runs a query of one column.
func column[T any](ctx context.Context, q querier, sql string, args ...any) ([]T, error) {
	return read(ctx, q, pgx.RowTo[T], sql, args)
}

func read[T any](ctx context.Context, q querier, to pgx.RowToFunc[T], sql string, args []any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return readRows(rows, to)
}

// readRows reads the rows of a query, which may be one of a batch.
func readRows[T any](rows pgx.Rows, to pgx.RowToFunc[T]) ([]T, error) {
	list, err := pgx.CollectRows(rows, to)
	return list, classifyError(err)
}

// answered reads the rows of the next statement of a batch by column name.
func answered[T any](batch pgx.BatchResults) ([]T, error) {
	rows, err := batch.Query()
	if err != nil {
		return nil, classifyError(err)
	}
	return readRows(rows, pgx.RowToStructByName[T])
}

// one runs a query and reads its first row by column name; nil if it has none.
func one[T any](ctx context.Context, q querier, sql string, args ...any) (*T, error) {
	list, err := collect[T](ctx, q, sql, args...)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// value runs a query of one row and one column.
func value[T any](ctx context.Context, q querier, sql string, args ...any) (v T, err error) {
	list, err := column[T](ctx, q, sql, args...)
	if err == nil {
		v = list[0]
	}
	return v, err
}

// wrap adds the action that failed to err; it returns nil if err is nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

const (
	limitTime = `
SELECT set_config('tasker.statement_timeout', current_setting('statement_timeout'), true),
    set_config('statement_timeout', least($1::bigint, nullif(extract(epoch FROM current_setting('statement_timeout')::interval) * 1000, 0)::bigint)::text, true)`
	resetStatementTimeout = `SELECT set_config('statement_timeout', current_setting('tasker.statement_timeout'), true)`
)

// collectWithTimeout is collect in one round trip with a statement timeout for this statement only.
func collectWithTimeout[T any](ctx context.Context, tx *Tx, limit time.Duration, sql string, args []any) ([]T, error) {
	var batch pgx.Batch
	batch.Queue(limitTime, max(limit.Milliseconds(), 1))
	batch.Queue(sql, args...)
	batch.Queue(resetStatementTimeout)
	results := tx.SendBatch(ctx, &batch)
	_, err := results.Exec()
	var rows []T
	if err == nil {
		rows, err = answered[T](results)
	}
	return rows, classifyError(cmp.Or(err, results.Close()))
}

// A scanned row translates its error.
type scannedRow struct{ pgx.Row }

// Scan reads the columns in their order.
func (r scannedRow) Scan(into ...any) error { return classifyError(r.Row.Scan(into...)) }

// Query runs a query.
func (tx *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := tx.Tx.Query(ctx, sql, args...)
	return rows, classifyError(err)
}

// QueryRow runs a query for one row.
func (tx *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return scannedRow{tx.Tx.QueryRow(ctx, sql, args...)}
}

// Exec runs a statement.
func (tx *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := tx.Tx.Exec(ctx, sql, args...)
	return tag, classifyError(err)
}
