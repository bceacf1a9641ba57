package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/invariants"
)

// shownViolations is how many violations of one database are shown.
const shownViolations = 1000

// Violations returns what is wrong in a database of Tasker, by [invariants.Find]. It is empty
// for a sound one.
func Violations(ctx context.Context, url string) ([]string, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	// As tasker doctor asks: the statistics of what a test has just written say nothing, and to
	// compile the query takes longer than to run it.
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

// CheckAtEnd fails the test when its database is not sound once the test has
// ended, by [Violations]. Call it after what works on the database is set to
// stop.
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
