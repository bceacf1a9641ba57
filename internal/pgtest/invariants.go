package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/invariants"
)

// shownViolations limits the violations per database.
const shownViolations = 1000

// Violations returns the violated invariants of a Tasker database, see [invariants.Find].
func Violations(ctx context.Context, url string) ([]string, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	// As in tasker doctor: the statistics of new rows are useless, and compiling the query takes
	// longer than running it.
	config.RuntimeParams["enable_nestloop"], config.RuntimeParams["jit"] = "off", "off"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	found, _, err := invariants.Find(ctx, conn, shownViolations)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, v := range found {
		list = append(list, v.String())
	}
	return list, nil
}

// CheckAtEnd fails the test if its database violates an invariant after the test. Call it after
// registering the cleanup of everything that uses the database.
func (db *DB) CheckAtEnd(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		at := db.URL
		if db.clock {
			at += "&search_path=" + ClockSchema + ",pg_catalog"
		}
		found, err := Violations(ctx, at)
		if err != nil {
			t.Errorf("find violations: %v", err)
		}
		for _, v := range found {
			t.Error(v)
		}
	})
}
