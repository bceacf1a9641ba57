package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"tasker.example/tasker"
)

// Settings are saved before they are changed until the end of the transaction.
const (
	readSettings = `SELECT coalesce(current_setting(name, true), '') FROM unnest($1::text[]) WITH ORDINALITY AS n (name, place) ORDER BY place`
	useSettings  = `SELECT set_config(name, value, true) FROM unnest($1::text[], $2::text[]) AS s (name, value)`
)

// Join runs f in the caller's transaction behind a savepoint and rolls back to it if f fails.
// Nothing in this process is notified when the caller commits. The statements of f run with the
// settings of [Open], restored afterwards, but with the caller's role, which needs the rights of a
// server.
func (db *DB) Join(ctx context.Context, outer pgx.Tx, f func(*Tx) error) error {
	err := pgx.BeginFunc(ctx, outer, func(inner pgx.Tx) error {
		names := slices.Sorted(maps.Keys(db.joined))
		values := make([]string, len(names))
		for i, name := range names {
			values[i] = db.joined[name]
		}
		before, err := column[string](ctx, inner, readSettings, names)
		if err != nil {
			return fmt.Errorf("read the settings of a transaction: %w", err)
		}
		if _, err := inner.Exec(ctx, useSettings, names, values); err != nil {
			return fmt.Errorf("set up a transaction: %w", err)
		}
		if err := f(&Tx{Tx: inner, queue: db.queue, joined: true}); err != nil {
			return err
		}
		if _, err := inner.Exec(ctx, useSettings, names, before); err != nil {
			return fmt.Errorf("give back the settings of a transaction: %w", err)
		}
		return nil
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case "42501":
			return &tasker.Error{Code: tasker.Forbidden, Err: err, Message: "the role of the transaction may not do this: " + pg.Message + "; grant it the role of a server (docs/reference/database-roles.md)"}
		case "42P01", "42703", "3F000":
			return &tasker.Error{Code: tasker.Invalid, Err: err, Message: "the transaction is of a database without this version of Tasker: " + pg.Message}
		}
	}
	return classifyError(err)
}

// ReadsCommitted refuses a transaction with a fixed snapshot: concurrent reports would each miss
// the steps of the other, and nobody would complete the task.
func (tx *Tx) ReadsCommitted(ctx context.Context) error {
	level, err := column[string](ctx, tx, `SELECT current_setting('transaction_isolation')`)
	if err != nil {
		return fmt.Errorf("read the isolation level of a transaction: %w", err)
	}
	if level[0] != "read committed" && level[0] != "read uncommitted" {
		return tasker.Errorf(tasker.Invalid, "the isolation level of the transaction is %s: a step can be completed in one that is READ COMMITTED only", level[0])
	}
	return nil
}

// Committed is called when another transaction than those of [DB.InTx] has committed what they do.
func (db *DB) Committed() { db.committed() }
