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
		saved, err := db.pool.Exec(ctx, stmt("saveCheckpoint"), l.TaskUUID, l.StepUUID, l.Fence, worker, value, bytes)
		held = saved.RowsAffected() > 0
		return err
	})
	return held, wrap(err, "save a checkpoint")
}

// DiscardCheckpoints removes the checkpoints of a locked step and of its open items.
func (tx *Tx) DiscardCheckpoints(ctx context.Context, step tasker.StepRef) error {
	_, err := tx.Exec(ctx, stmt("discardCheckpoints"), step.TaskUUID, step.StepUUID)
	return wrap(err, "discard checkpoints")
}

// addCheckpoint adds the value to the checkpoint of a step that has one.
func addCheckpoint(ctx context.Context, q querier, s *tasker.Step) error {
	if s.Checkpoint == nil {
		return nil
	}
	found, err := column[json.RawMessage](ctx, q, stmt("stepCheckpoint"), s.TaskUUID, s.UUID)
	if len(found) > 0 {
		s.Checkpoint.Value = found[0]
		access.HideSteps(ctx, *s)
	}
	return wrap(err, "read a checkpoint")
}
