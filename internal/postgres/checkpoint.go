package postgres

import (
	"context"
	"encoding/json"
	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// The fence keeps an attempt that lost its lease from replacing a later checkpoint.
//
// $1 task, $2 step, $3 fence, $4 worker, $5 value, $6 size in bytes.
const saveCheckpoint = `
WITH held AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid, s.attempts, s.checkpointed
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = $1 AND s.step_uuid = $2 AND s.fence = $3 AND s.worker_uuid = $4 AND s.state = 'in_progress'
    FOR NO KEY UPDATE
),
marked AS (
    UPDATE tasker.workflow_steps s
    SET checkpointed = true
    FROM held h
    WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND h.checkpointed IS NOT TRUE
)
INSERT INTO tasker.step_checkpoints AS c (task_uuid, step_uuid, value, bytes, attempt, saved_at)
SELECT h.task_uuid, h.step_uuid, $5, $6, h.attempts, clock_timestamp() FROM held h
ON CONFLICT (task_uuid, step_uuid) DO UPDATE
SET value = excluded.value, bytes = excluded.bytes, attempt = excluded.attempt, saved_at = excluded.saved_at`

// SaveCheckpoint replaces the checkpoint of a step and reports whether the worker holds the lease.
func (db *DB) SaveCheckpoint(ctx context.Context, worker tasker.ID, l tasker.Lease, value json.RawMessage, bytes int) (held bool, err error) {
	err = retry(ctx, func() error {
		saved, err := db.pool.Exec(ctx, saveCheckpoint, l.TaskUUID, l.StepUUID, l.Fence, worker, value, bytes)
		held = saved.RowsAffected() > 0
		return err
	})
	return held, wrap(err, "save a checkpoint")
}

const discardCheckpoints = `
WITH marked AS (
    UPDATE tasker.workflow_steps s
    SET checkpointed = NULL
    WHERE s.task_uuid = $1 AND (s.step_uuid = $2 OR s.map_step_uuid = $2) AND s.checkpointed
      AND s.state NOT IN ('complete', 'resolved_manually', 'skipped', 'cancelled')
    RETURNING s.task_uuid, s.step_uuid
)
DELETE FROM tasker.step_checkpoints c
USING marked m
WHERE c.task_uuid = m.task_uuid AND c.step_uuid = m.step_uuid`

// DiscardCheckpoints removes the checkpoints of a locked step and its open items.
func (tx *Tx) DiscardCheckpoints(ctx context.Context, step tasker.StepRef) error {
	_, err := tx.Exec(ctx, discardCheckpoints, step.TaskUUID, step.StepUUID)
	return wrap(err, "discard checkpoints")
}

// checkpointOfStep selects the checkpoint of an open step s, without its value.
const checkpointOfStep = `CASE WHEN s.checkpointed AND s.state NOT IN ('complete', 'resolved_manually', 'skipped', 'cancelled') THEN (
        SELECT jsonb_build_object('attempt', c.attempt, 'bytes', c.bytes, 'saved_at', c.saved_at)
        FROM tasker.step_checkpoints c
        WHERE c.task_uuid = s.task_uuid AND c.step_uuid = s.step_uuid
    ) END`

const stepCheckpoint = `
SELECT c.value FROM tasker.step_checkpoints c
JOIN tasker.workflow_steps s ON s.task_uuid = c.task_uuid AND s.step_uuid = c.step_uuid
WHERE c.task_uuid = $1 AND c.step_uuid = $2 AND s.checkpointed`

// addCheckpoint adds the value to the checkpoint of a step, if it has one.
func addCheckpoint(ctx context.Context, q querier, s *tasker.Step) error {
	if s.Checkpoint == nil {
		return nil
	}
	found, err := column[json.RawMessage](ctx, q, stepCheckpoint, s.TaskUUID, s.UUID)
	if len(found) > 0 {
		s.Checkpoint.Value = found[0]
		access.HideSteps(ctx, *s)
	}
	return wrap(err, "read a checkpoint")
}
