package embedded

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// CreateTaskTx is [Engine.CreateTask] in a transaction of yours, on the database of the engine:
// the task is there when the transaction commits, and nothing is when it does not, not even a
// notification. After an error the transaction can go on. Its role needs what a server needs,
// the role tasker_server of docs/reference/database-roles.md.
func (e *Engine) CreateTaskTx(ctx context.Context, tx pgx.Tx, t tasker.NewTask) (tasker.ID, error) {
	created, err := e.engine.CreateTasksTx(ctx, tx, []tasker.NewTask{t})
	if err != nil {
		return tasker.ID{}, err
	}
	return created[0].TaskUUID, nil
}

// CompleteStepTx completes the step that a handler executes, in a transaction of yours: what
// the handler has written and the completion count together, or neither does. The lease is that
// of the call. The handler then returns the same result, whose report changes nothing, or an
// error if the transaction did not commit.
//
// The transaction holds a lock on the task until it ends, for which reports of its other steps
// wait: complete the step at the end of the transaction. The error is a Conflict when the lease
// is lost; then roll the transaction back.
func (e *Engine) CompleteStepTx(ctx context.Context, tx pgx.Tx, lease tasker.Lease, result json.RawMessage) error {
	return e.engine.CompleteStepTx(ctx, tx, tasker.Outcome{Lease: lease, Success: true, Result: result})
}

// CompleteExternalTx is [Engine.CompleteExternal] in a transaction of yours.
func (e *Engine) CompleteExternalTx(ctx context.Context, tx pgx.Tx, step tasker.StepRef, o tasker.Outcome, source string) error {
	return e.engine.CompleteExternalTx(ctx, tx, step, o, source)
}
