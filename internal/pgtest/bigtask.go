package pgtest

import (
	"cmp"
	"context"
	_ "embed"
	"strings"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

//go:embed bigtask.sql
var insertBigTask string

// BigTask describes a task with many steps that [InsertBigTask] writes with its whole history, as
// the engine would. Of the steps, counted from 1, the first Complete are complete, the next Failed
// have failed permanently, and the others are in Rest.
type BigTask struct {
	Namespace, Handler string
	Steps              int
	Complete           int
	Failed             int
	Failures           int              // failed attempts of each failed step; at least 1
	Rest               tasker.StepState // pending, enqueued or in_progress; default enqueued
	Chain              bool             // each step depends on the one before it; otherwise there are no dependencies
	Result             string           // SQL expression of type jsonb over i, the number of the step; default a small result
	FailureContext     string           // SQL expression of type jsonb over i and attempt; default a small one
	Context            string           // SQL expression of type jsonb; default a small one
}

// A Querier is a connection, a pool or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// InsertBigTask writes a task into a database and returns its id. It is for tests and benchmarks of
// large tasks.
func InsertBigTask(ctx context.Context, db Querier, b BigTask) (tasker.ID, error) {
	sql := strings.NewReplacer(
		"'RESULT'", cmp.Or(b.Result, `jsonb_build_object('amount', i, 'currency', 'EUR')`),
		"'FAILURE'", cmp.Or(b.FailureContext, `jsonb_build_object('status', 503, 'attempt', attempt)`),
		"'CONTEXT'", cmp.Or(b.Context, `'{"order": 4711}'::jsonb`),
	).Replace(insertBigTask)
	var id tasker.ID
	err := db.QueryRow(ctx, sql, cmp.Or(b.Namespace, "shop"), cmp.Or(b.Handler, "run"), b.Steps, b.Complete, b.Failed,
		max(b.Failures, 1), cmp.Or(b.Rest, tasker.StepEnqueued), b.Chain).Scan(&id)
	return id, err
}
