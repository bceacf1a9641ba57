package pgtest

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/lifecycle"
)

//go:embed invariants.sql
var invariants string

// Violations returns what is wrong in a database of Tasker: moves that are
// illegal or missing in the history, tasks without a way forward, counts that
// are off. It is empty for a sound one.
func Violations(ctx context.Context, url string) ([]string, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	args := slices.Concat(columns(lifecycle.Task.Edges()), columns(lifecycle.Step.Edges()), causes())
	rows, err := conn.Query(ctx, invariants, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var violation, detail string
		var task *[16]byte // none, if it is about all
		err := row.Scan(&violation, &task, &detail)
		if task == nil {
			return violation + ": " + detail, err
		}
		return fmt.Sprintf("%s: task %x: %s", violation, *task, detail), err
	})
}

func columns[S, E ~string](edges []lifecycle.Edge[S, E]) []any {
	var from, event, to []string
	for _, e := range edges {
		from, event, to = append(from, string(e.From)), append(event, string(e.Event)), append(to, string(e.To))
	}
	return []any{from, event, to}
}

func causes() []any {
	var reasons, codes []string
	for _, c := range tasker.Causes() {
		reasons, codes = append(reasons, string(c.Reason)), append(codes, c.Code)
	}
	return []any{reasons, codes}
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
			t.Errorf("look for violations: %v", err)
		}
		for _, v := range found {
			t.Error(v)
		}
	})
}
