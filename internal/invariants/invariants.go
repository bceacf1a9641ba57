// Package invariants defines the invariants of a Tasker database as queries that return violations.
package invariants

import (
	"context"
	_ "embed"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/lifecycle"
)

//go:embed invariants.sql
var violations string

// A Violation is one thing that is not as it must be: a move that is illegal or missing in the
// history, a task without a way forward, a count that is off.
type Violation struct {
	Rule   string     // what is wrong
	Task   *tasker.ID // nil when it is not about one task
	Detail string
}

// String formats the violation on one line.
func (v Violation) String() string {
	if v.Task == nil {
		return v.Rule + ": " + v.Detail
	}
	return fmt.Sprintf("%s: task %s: %s", v.Rule, v.Task, v.Detail)
}

// Querier runs queries: a connection, or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Find returns the first violations, at most so many, and how many there are. It reads the
// whole database, and sees no transaction that is open.
func Find(ctx context.Context, db Querier, most int) (list []Violation, all int, err error) {
	rows, err := db.Query(ctx, violations, slices.Concat(columns(lifecycle.Task.Edges()), columns(lifecycle.Step.Edges()), causes())...)
	if err != nil {
		return nil, 0, fmt.Errorf("find violations: %w", err)
	}
	var v Violation
	if _, err := pgx.ForEachRow(rows, []any{&v.Rule, &v.Task, &v.Detail}, func() error {
		if all++; all <= most {
			list = append(list, v)
		}
		return nil
	}); err != nil {
		return nil, 0, fmt.Errorf("find violations: %w", err)
	}
	return list, all, nil
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
