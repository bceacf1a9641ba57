package engine

import (
	"context"
	"encoding/json"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
)

// SaveCheckpoint replaces the checkpoint of a step. It does not extend the lease. It returns
// StaleLease if the lease is lost, and Invalid or TooLarge if the value cannot be stored.
func (e *Engine) SaveCheckpoint(ctx context.Context, worker tasker.ID, l tasker.Lease, value json.RawMessage) error {
	size, err := payload.Measure(value, payload.Limits{})
	if err != nil {
		return tasker.Errorf(tasker.Invalid, "checkpoint: %s", err)
	}
	if size > tasker.MaxCheckpointBytes {
		return tasker.Errorf(tasker.TooLarge,
			"checkpoint has %d bytes: the limit is %d", size, tasker.MaxCheckpointBytes)
	}
	held, err := e.db.SaveCheckpoint(postgres.WithConnClass(ctx, postgres.Work), worker, l, value, size)
	if err != nil {
		return err
	}
	if !held {
		return tasker.Errorf(tasker.StaleLease, "lease of step %s lost: the checkpoint was not saved", l.StepUUID)
	}
	return nil
}
