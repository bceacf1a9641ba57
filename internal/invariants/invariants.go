// Package invariants defines the invariants of a Tasker database as queries that return violations.
package invariants

import (
	"context"
	_ "embed"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

//go:embed invariants.sql
var violations string

// A Violation is a violated invariant, such as an illegal or missing transition, a task that can
// never continue, or a wrong count.
type Violation struct {
	Rule   string     // description of the violated invariant
	Task   *tasker.ID // nil if the violation does not concern a single task
	Detail string
}

// String formats the violation on one line.
func (v Violation) String() string {
	if v.Task == nil {
		return v.Rule + ": " + v.Detail
	}
	return fmt.Sprintf("%s: task %s: %s", v.Rule, v.Task, v.Detail)
}

// Querier runs queries. Connections and transactions implement it.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Find returns the first violations, at most most, and the total number. It reads the whole
// database as it was last committed.
func Find(ctx context.Context, db Querier, most int) (list []Violation, all int, err error) {
	rows, err := db.Query(ctx, violations, slices.Concat(edgeColumns(core.TaskMoves.Edges()), edgeColumns(core.StepMoves.Edges()), causeColumns())...)
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

func edgeColumns[S, E ~string](edges []core.Edge[S, E]) []any {
	var from, event, to []string
	for _, e := range edges {
		from, event, to = append(from, string(e.From)), append(event, string(e.Event)), append(to, string(e.To))
	}
	return []any{from, event, to}
}

func causeColumns() []any {
	var reasons, codes []string
	for _, c := range tasker.Causes() {
		reasons, codes = append(reasons, string(c.Reason)), append(codes, c.Code)
	}
	return []any{reasons, codes}
}
