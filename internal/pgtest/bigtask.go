package pgtest

import (
	"context"
	_ "embed"
	"strings"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

//go:embed bigtask.sql
var insertBigTask string

// BigTask describes a task of many steps that [InsertBigTask] writes as the engine
// would have left it, with its whole history. Steps are counted from 1: the first
// Complete of them are complete, the next Failed have failed for good, and what is
// left is in Rest.
type BigTask struct {
	Namespace, Handler string
	Steps              int
	Complete           int
	Failed             int
	Failures           int              // of each failed step, each of them an attempt; at least 1
	Rest               tasker.StepState // pending, enqueued or in_progress; empty means enqueued
	Chain              bool             // each step depends on the one before it; otherwise none depends on any
	Result             string           // SQL expression of type jsonb, over i, the number of the step; empty means a small result
	FailureContext     string           // SQL expression of type jsonb, over i and attempt; empty means a small one
	Context            string           // SQL expression of type jsonb; empty means a small context
}

// A Querier is a connection, a pool or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// InsertBigTask writes a task into a database and returns its id. It is for tests
// and benchmarks of what the cost of a task of many steps is.
func InsertBigTask(ctx context.Context, db Querier, b BigTask) (tasker.ID, error) {
	or := func(expression, otherwise string) string {
		if expression == "" {
			return otherwise
		}
		return expression
	}
	sql := strings.NewReplacer(
		"'RESULT'", or(b.Result, `jsonb_build_object('amount', i, 'currency', 'EUR')`),
		"'FAILURE'", or(b.FailureContext, `jsonb_build_object('status', 503, 'attempt', attempt)`),
		"'CONTEXT'", or(b.Context, `'{"order": 4711}'::jsonb`),
	).Replace(insertBigTask)
	var id tasker.ID
	err := db.QueryRow(ctx, sql, or(b.Namespace, "shop"), or(b.Handler, "run"), b.Steps, b.Complete, b.Failed, max(b.Failures, 1),
		or(string(b.Rest), string(tasker.StepEnqueued)), b.Chain).Scan(&id)
	return id, err
}
