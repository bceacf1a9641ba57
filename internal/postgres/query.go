package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// querier executes statements on a connection pool or in a transaction. It classifies errors.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// exec executes a statement. The action describes it in the error.
func exec(ctx context.Context, q querier, action, sql string, args ...any) error {
	_, err := q.Exec(ctx, sql, args...)
	return wrapError(err, "%s", action)
}

// collect executes a query and reads its rows by column name.
func collect[T any](ctx context.Context, q querier, sql string, args ...any) ([]T, error) {
	return queryRows(ctx, q, pgx.RowToStructByName[T], sql, args)
}

// collectColumn executes a query that returns one column.
func collectColumn[T any](ctx context.Context, q querier, sql string, args ...any) ([]T, error) {
	return queryRows(ctx, q, pgx.RowTo[T], sql, args)
}

func queryRows[T any](ctx context.Context, q querier, to pgx.RowToFunc[T], sql string, args []any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return readRows(rows, to)
}

func readRows[T any](rows pgx.Rows, to pgx.RowToFunc[T]) ([]T, error) {
	list, err := pgx.CollectRows(rows, to)
	return list, classifyError(err)
}

// readBatchRows reads the rows of the next statement in a batch by column name.
func readBatchRows[T any](batch pgx.BatchResults) ([]T, error) {
	return scanBatchRows(batch, pgx.RowToStructByName[T])
}

// scanBatchRows reads the rows of the next statement in a batch with the given function.
func scanBatchRows[T any](batch pgx.BatchResults, to pgx.RowToFunc[T]) ([]T, error) {
	rows, err := batch.Query()
	if err != nil {
		return nil, classifyError(err)
	}
	return readRows(rows, to)
}

// queryOne executes a query and reads its first row by column name. It returns nil if there is no
// row.
func queryOne[T any](ctx context.Context, q querier, sql string, args ...any) (*T, error) {
	list, err := collect[T](ctx, q, sql, args...)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// queryRequired is [queryOne], but returns the error missing if there is no row. The action
// describes the query in other errors.
//
//nolint:revive // a statement and its arguments count as two
func queryRequired[T any](ctx context.Context, q querier, missing error, action, sql string, args ...any) (row T, err error) {
	list, err := collect[T](ctx, q, sql, args...)
	if err != nil {
		return row, fmt.Errorf("%s: %w", action, err)
	}
	if len(list) == 0 {
		return row, missing
	}
	return list[0], nil
}

// queryPage executes a query that reads one row more than limit. It returns up to limit rows and
// reports whether there are more.
//
//nolint:revive // a statement and its arguments count as two
func queryPage[T any](ctx context.Context, q querier, limit int, action, sql string, args ...any) (list []T, more bool, err error) {
	if list, err = collect[T](ctx, q, sql, args...); err != nil {
		return nil, false, fmt.Errorf("%s: %w", action, err)
	}
	more = len(list) > limit
	return list[:min(len(list), limit)], more, nil
}

// selectMap executes a query whose two columns are the keys and values of a map.
func selectMap[K comparable, V any](ctx context.Context, q querier, action, sql string, args ...any) (map[K]V, error) {
	type pair struct {
		Key   K
		Value V
	}
	list, err := queryRows(ctx, q, pgx.RowToStructByPos[pair], sql, args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	m := make(map[K]V, len(list))
	for _, p := range list {
		m[p.Key] = p.Value
	}
	return m, nil
}

// mapSlice returns the results of applying f to the elements of a list.
func mapSlice[T, U any](list []T, f func(T) U) []U {
	out := make([]U, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}

// groupByKey returns a map from keys to the elements of a list.
func groupByKey[K comparable, T any](list []T, key func(T) K) map[K]T {
	m := make(map[K]T, len(list))
	for _, v := range list {
		m[key(v)] = v
	}
	return m
}

// queryFirst executes a query that returns one column. It returns the first value, or nil if there
// is no row.
func queryFirst[T any](ctx context.Context, q querier, sql string, args ...any) (*T, error) {
	list, err := collectColumn[T](ctx, q, sql, args...)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// queryValue executes a query that returns one row with one column.
func queryValue[T any](ctx context.Context, q querier, sql string, args ...any) (v T, err error) {
	list, err := collectColumn[T](ctx, q, sql, args...)
	if err == nil {
		v = list[0]
	}
	return v, err
}

// wrapError adds the action that failed to err. It returns nil if err is nil.
func wrapError(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// collectWithTimeout is collect with a timeout for this statement. It takes a single round trip.
func collectWithTimeout[T any](ctx context.Context, tx *Tx, limit time.Duration, sql string, args []any) ([]T, error) {
	var batch pgx.Batch
	batch.Queue(statement("limitTime"), max(limit.Milliseconds(), 1))
	batch.Queue(sql, args...)
	batch.Queue(statement("resetStatementTimeout"))
	results := tx.SendBatch(ctx, &batch)
	_, err := results.Exec()
	var rows []T
	if err == nil {
		rows, err = readBatchRows[T](results)
	}
	return rows, classifyError(cmp.Or(err, results.Close()))
}

// scannedRow is a row that classifies errors.
type scannedRow struct{ pgx.Row }

// Scan reads the columns of the row in order.
func (r scannedRow) Scan(into ...any) error { return classifyError(r.Row.Scan(into...)) }

// Query executes a query.
func (tx *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := tx.Tx.Query(ctx, sql, args...)
	return rows, classifyError(err)
}

// QueryRow executes a query that returns one row.
func (tx *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return scannedRow{tx.Tx.QueryRow(ctx, sql, args...)}
}

// Exec executes a statement.
func (tx *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := tx.Tx.Exec(ctx, sql, args...)
	return tag, classifyError(err)
}
