package testclock_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/testclock"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// A jump waits for the transactions that have read the clock, so that each one sees one time.
func TestJump(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	clock, other := connect(t, db.AdminURL), connect(t, db.AdminURL)
	begin := time.Date(2100, time.March, 1, 0, 0, 0, 0, time.UTC)
	if err := testclock.Install(t.Context(), clock, begin, testclock.RealSpeed); err != nil {
		t.Fatal(err)
	}
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var before time.Time
	if err := tx.QueryRow(t.Context(), `SELECT test_clock.clock_timestamp()`).Scan(&before); err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if at, err := testclock.Jump(limited, clock, 24*time.Hour); err == nil {
		t.Errorf("the clock jumped to %s during a transaction", at)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	clock = connect(t, db.AdminURL) // the deadline has closed the first one
	at, err := testclock.Jump(t.Context(), clock, 24*time.Hour)
	if jumped := at.Sub(before); err != nil || jumped < 24*time.Hour || jumped > 25*time.Hour {
		t.Errorf("from %s the clock jumped to %s, %v", before, at, err)
	}
	if now, err := testclock.Now(t.Context(), other); err != nil || now.Before(at) || now.After(at.Add(time.Hour)) {
		t.Errorf("after the jump to %s the clock has %s, %v", at, now, err)
	}
}
