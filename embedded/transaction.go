package embedded

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// CreateTaskTx is like [Engine.CreateTask] within a transaction of the caller on the database of
// the engine. The task exists after the commit; a rollback leaves no trace. The transaction
// remains usable after an error. Its role needs the privileges of tasker_server, see
// docs/reference/database-roles.md.
func (e *Engine) CreateTaskTx(ctx context.Context, tx pgx.Tx, t tasker.NewTask) (tasker.ID, error) {
	created, err := e.engine.CreateTasksTx(ctx, tx, []tasker.NewTask{t})
	if err != nil {
		return tasker.ID{}, err
	}
	return created[0].TaskUUID, nil
}

// CompleteStepTx completes the current step of a handler within a transaction of the caller, so
// that the writes of the handler and the completion are atomic. The handler then returns the same
// result, whose report has no effect, or an error if the commit failed.
//
// The transaction locks the task, and reports of its other steps wait: call CompleteStepTx at the
// end of the transaction. It returns a Conflict if the lease is lost; the caller must roll back.
func (e *Engine) CompleteStepTx(ctx context.Context, tx pgx.Tx, lease tasker.Lease, result json.RawMessage) error {
	return e.engine.CompleteStepTx(ctx, tx, tasker.Outcome{Lease: lease, Success: true, Result: result})
}

// CompleteExternalTx is like [Engine.CompleteExternal] within a transaction of the caller.
func (e *Engine) CompleteExternalTx(ctx context.Context, tx pgx.Tx, step tasker.StepRef, o tasker.Outcome, source string) error {
	return e.engine.CompleteExternalTx(ctx, tx, step, o, source)
}
