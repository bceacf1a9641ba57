package pgtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/testclock"
)

// ClockSchema is the schema of a [Clock]. Sessions that use the clock need it in their search path.
const ClockSchema = testclock.Schema

// A Clock is a clock of one database that a test controls. It runs at a hundredth of the real
// speed.
type Clock struct{ conn *pgx.Conn }

// NewClock installs a clock that starts at begin. It applies to sessions that have [ClockSchema]
// first in their search path, and to the defaults, views and functions of the schema. Call it
// before anything else uses the database.
func (db *DB) NewClock(t testing.TB, begin time.Time) *Clock {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.AdminURL)
	if err != nil {
		t.Fatalf("connect to the test's database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		_ = conn.Close(ctx)
	})
	if err := testclock.Install(t.Context(), conn, begin, testclock.Slow); err != nil {
		t.Fatal(err)
	}
	db.clock = true
	return &Clock{conn: conn}
}

// Now returns the time of the clock.
func (c *Clock) Now(ctx context.Context) (time.Time, error) { return testclock.Now(ctx, c.conn) }

// Forward advances the clock. No transaction may run concurrently, because it would see two times.
func (c *Clock) Forward(ctx context.Context, d time.Duration) error {
	return testclock.Forward(ctx, c.conn, d)
}

// NextStale returns the time until a task becomes stale, exceeds its maximum duration, or has been
// in error without an investigation for too long. It returns nil if there is no such task.
func (c *Clock) NextStale(ctx context.Context) (*time.Duration, error) {
	var seconds float64
	err := c.conn.QueryRow(ctx, `
		SELECT extract(epoch FROM min(u.at) - n.at)::float8
		FROM (SELECT test_clock.clock_timestamp() AS at) n
		CROSS JOIN tasker.tasks t
		CROSS JOIN LATERAL (VALUES (t.stale_at), (CASE WHEN t.stale_at IS NOT NULL THEN t.ends_at END), (t.attend_by)) u (at)
		WHERE u.at > n.at
		GROUP BY n.at`).Scan(&seconds)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // as documented
	}
	if err != nil {
		return nil, fmt.Errorf("find tasks that become stale: %w", err)
	}
	d := time.Duration(seconds * float64(time.Second))
	return &d, nil
}
