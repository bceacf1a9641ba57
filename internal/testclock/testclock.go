// Package testclock shifts the clock of one database. The clock applies to sessions whose search
// path has [Schema] before pg_catalog, and to the defaults, views and functions of the tasker
// schema. It is for tests only: it changes these objects permanently.
package testclock

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"tasker.example/tasker/internal/sqlfile"
)

// Schema is the schema of the clock. Sessions that use the clock need it in their search path.
const Schema = "test_clock"

//go:embed clock.sql
var clockSQL string

//go:embed sql/*.sql
var sqlFiles embed.FS

// statement returns the statement with the given name in sql/*.sql. It panics if there is none.
var statement = sqlfile.Load(sqlFiles).Get

// Speeds of a clock between two jumps, relative to the real time.
const (
	RealSpeed = 1.0
	// Slow makes times differ, and makes nothing due on a slow machine.
	Slow = 0.01
)

// Install installs a clock that starts at begin. The user of conn must own the database. Call it
// after the migration and before anything else uses the database.
func Install(ctx context.Context, conn *pgx.Conn, begin time.Time, speed float64) error {
	_, err := conn.Exec(ctx, clockSQL, pgx.QueryExecModeSimpleProtocol)
	if err == nil {
		_, err = conn.Exec(ctx, statement("startClock"), begin, speed)
	}
	if err != nil {
		return fmt.Errorf("install the test clock: %w", err)
	}
	return nil
}

// Now returns the time of the clock.
func Now(ctx context.Context, conn *pgx.Conn) (at time.Time, err error) {
	err = conn.QueryRow(ctx, statement("now")).Scan(&at)
	return at.UTC(), err
}

// Forward advances the clock. No transaction may run concurrently, because it would see two times.
func Forward(ctx context.Context, conn *pgx.Conn, d time.Duration) error {
	_, err := conn.Exec(ctx, statement("forward"), max(d, 0))
	return err
}

// Timeouts of [Jump].
const (
	lockWait  = 500 * time.Millisecond // shorter than deadlock_timeout, so that a jump fails instead of others
	jumpTries = 60
)

// Jump advances the clock of a database in use and returns the new time. It first waits until no
// transaction that has read the clock is running, so that each one sees only one time.
func Jump(ctx context.Context, conn *pgx.Conn, d time.Duration) (at time.Time, err error) {
	for range jumpTries {
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, statement("setLockTimeout"), fmt.Sprint(lockWait.Milliseconds())); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, statement("lockClock")); err != nil {
				return err
			}
			if err := Forward(ctx, tx.Conn(), d); err != nil {
				return err
			}
			at, err = Now(ctx, tx.Conn())
			return err
		})
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != lockNotAvailable {
			break
		}
	}
	return at, err
}

const lockNotAvailable = "55P03"

// Wake makes a server poll for due work. The channel is the one that the server listens on.
func Wake(ctx context.Context, conn *pgx.Conn, channel string) error {
	_, err := conn.Exec(ctx, statement("wake"), channel)
	return err
}
