package postgres

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
)

// errSharedSessions indicates that a pooler does not assign a PostgreSQL session to each client.
var errSharedSessions = tasker.Errorf(tasker.Unavailable,
	"the database URL points to a pooler, such as PgBouncer, in transaction or statement mode, "+
		"which loses settings and prepared statements: set pool_mode = session, or connect to PostgreSQL directly")

// applySettings sets the parameters of a session, since poolers may ignore startup parameters.
func applySettings(ctx context.Context, c *pgx.Conn, settings map[string]string) error {
	names := slices.Sorted(maps.Keys(settings))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = settings[name]
	}
	var process uint32
	// This returns the values as PostgreSQL formats them.
	err := c.QueryRow(ctx, statement("setSettings"), pgx.QueryExecModeExec, names, values).Scan(&process, &values)
	if err != nil || process == c.PgConn().PID() {
		return err // no pooler
	}
	var lost int
	err = c.QueryRow(ctx, statement("countLost"), pgx.QueryExecModeExec, names, values).Scan(&lost)
	if err == nil && lost > 0 {
		err = errSharedSessions
	}
	return err
}

// checkSessions returns an error if a pooler serves two connections with the same session.
func checkSessions(ctx context.Context, p *pools, cfg *pgx.ConnConfig) error {
	err := p.of[General].AcquireFunc(ctx, func(first *pgxpool.Conn) error {
		var process, other uint32
		if err := first.QueryRow(ctx, statement("selectProcessID"), pgx.QueryExecModeExec).Scan(&process); err != nil || process == first.Conn().PgConn().PID() {
			return err
		}
		second, err := pgx.ConnectConfig(ctx, cfg)
		if err != nil {
			return err
		}
		defer func() { _ = second.Close(context.WithoutCancel(ctx)) }()
		if err := second.QueryRow(ctx, statement("selectProcessID"), pgx.QueryExecModeExec).Scan(&other); err != nil {
			return err
		}
		if process == other {
			return errSharedSessions
		}
		return nil
	})
	return classifyError(err)
}
