-- name: saveCheckpoint
-- Because of the fence, an attempt that has lost its lease cannot replace a later checkpoint.
--
-- $1 task, $2 step, $3 fence, $4 worker, $5 value, $6 size in bytes.
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
SET value = excluded.value, bytes = excluded.bytes, attempt = excluded.attempt, saved_at = excluded.saved_at;

-- name: discardCheckpoints
WITH marked AS (
    UPDATE tasker.workflow_steps s
    SET checkpointed = NULL
    WHERE s.task_uuid = $1 AND (s.step_uuid = $2 OR s.map_step_uuid = $2) AND s.checkpointed
      AND s.state NOT IN ('complete', 'resolved_manually', 'skipped', 'cancelled')
    RETURNING s.task_uuid, s.step_uuid
)
DELETE FROM tasker.step_checkpoints c
USING marked m
WHERE c.task_uuid = m.task_uuid AND c.step_uuid = m.step_uuid;

-- name: stepCheckpoint
SELECT c.value FROM tasker.step_checkpoints c
JOIN tasker.workflow_steps s ON s.task_uuid = c.task_uuid AND s.step_uuid = c.step_uuid
WHERE c.task_uuid = $1 AND c.step_uuid = $2 AND s.checkpointed;
