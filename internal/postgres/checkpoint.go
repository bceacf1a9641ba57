package postgres

import (
	"context"
	"encoding/json"
	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// SaveCheckpoint replaces the checkpoint of a step. It returns false if the worker does not hold
// the lease.
func (db *DB) SaveCheckpoint(ctx context.Context, worker tasker.ID, l tasker.Lease, value json.RawMessage, bytes int) (held bool, err error) {
	err = retry(ctx, func() error {
		saved, err := db.pool.Exec(ctx, statement("saveCheckpoint"), l.TaskUUID, l.StepUUID, l.Fence, worker, value, bytes)
		held = saved.RowsAffected() > 0
		return err
	})
	return held, wrapError(err, "save a checkpoint")
}

// DiscardCheckpoints removes the checkpoints of a locked step and of its open items.
func (tx *Tx) DiscardCheckpoints(ctx context.Context, step tasker.StepRef) error {
	_, err := tx.Exec(ctx, statement("discardCheckpoints"), step.TaskUUID, step.StepUUID)
	return wrapError(err, "discard checkpoints")
}

// addCheckpoint adds the value to the checkpoint of a step that has one.
func addCheckpoint(ctx context.Context, q querier, s *tasker.Step) error {
	if s.Checkpoint == nil {
		return nil
	}
	found, err := collectColumn[json.RawMessage](ctx, q, statement("stepCheckpoint"), s.TaskUUID, s.UUID)
	if len(found) > 0 {
		s.Checkpoint.Value = found[0]
		access.RedactSteps(ctx, *s)
	}
	return wrapError(err, "read a checkpoint")
}
