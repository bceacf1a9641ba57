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

// Join calls f in the caller's transaction. It sets a savepoint first and rolls back to it if f
// fails. The process does not notice the caller's commit (see [DB.Committed]). The statements of f
// run with the settings of [Open], which Join reverts afterwards. They run with the caller's role,
// which needs the privileges of a server.
func (db *DB) Join(ctx context.Context, outer pgx.Tx, f func(*Tx) error) error {
	err := pgx.BeginFunc(ctx, outer, func(inner pgx.Tx) error {
		names := slices.Sorted(maps.Keys(db.joined))
		values := make([]string, len(names))
		for i, name := range names {
			values[i] = db.joined[name]
		}
		before, err := collectColumn[string](ctx, inner, statement("readSettings"), names)
		if err != nil {
			return fmt.Errorf("read the settings of a transaction: %w", err)
		}
		if _, err := inner.Exec(ctx, statement("useSettings"), names, values); err != nil {
			return fmt.Errorf("set up a transaction: %w", err)
		}
		if err := f(&Tx{Tx: inner, queue: db.queue, joined: true}); err != nil {
			return err
		}
		if _, err := inner.Exec(ctx, statement("useSettings"), names, before); err != nil {
			return fmt.Errorf("restore the settings of a transaction: %w", err)
		}
		return nil
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case "42501":
			return &tasker.Error{Code: tasker.Forbidden, Err: err, Message: "the transaction's role lacks a privilege: " + pg.Message + "; grant it the server role (docs/reference/database-roles.md)"}
		case "42P01", "42703", "3F000":
			return &tasker.Error{Code: tasker.Invalid, Err: err, Message: "the transaction's database does not " +
				"have this version of Tasker: " + pg.Message}
		}
	}
	return classifyError(err)
}

// CheckReadCommitted returns Invalid if the transaction reads from a fixed snapshot. Concurrent
// reports would then not see each other's steps, and the task would never be completed.
func (tx *Tx) CheckReadCommitted(ctx context.Context) error {
	level, err := queryValue[string](ctx, tx, statement("readsCommitted"))
	if err != nil {
		return fmt.Errorf("read the isolation level of a transaction: %w", err)
	}
	if level != "read committed" && level != "read uncommitted" {
		return tasker.Errorf(tasker.Invalid,
			"invalid isolation level %s: a step can only be completed in a READ COMMITTED transaction", level)
	}
	return nil
}

// Committed must be called after a transaction that was passed to [DB.Join] is committed.
func (db *DB) Committed() { db.runCommitHooks() }
