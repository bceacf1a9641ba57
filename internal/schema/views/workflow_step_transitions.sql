-- Every move of the steps: contiguous and legal for each step, starting from pending. The
-- row that ends an attempt has the moves before it; those of an attempt that is under way
-- are in the row of the step.
CREATE OR REPLACE VIEW tasker.workflow_step_transitions AS
SELECT h.task_uuid, h.transition_id, h.step_uuid, h.from_state, h.to_state, h.event, h.attempt, h.worker_uuid, h.actor, h.reason, h.detail, h.created_at,
    h.operation_uuid
FROM tasker.step_history h
UNION ALL
SELECT h.task_uuid, h.moves_id, h.step_uuid, 'pending', 'enqueued', 'enqueue', h.attempt, NULL, NULL, NULL, NULL, h.enqueued_at, NULL
FROM tasker.step_history h
WHERE h.enqueued_at IS NOT NULL
UNION ALL
SELECT h.task_uuid, h.moves_id + 1, h.step_uuid, 'enqueued', 'in_progress', 'claim', h.attempt, h.worker_uuid, NULL, NULL, NULL, h.claimed_at, NULL
FROM tasker.step_history h
WHERE h.claimed_at IS NOT NULL
UNION ALL
SELECT s.task_uuid, s.moves_id, s.step_uuid, 'pending', 'enqueued', 'enqueue', s.attempts, NULL, NULL, NULL, NULL,
    CASE WHEN s.unwritten = 1 THEN s.state_since ELSE s.enqueued_at END, NULL
FROM tasker.workflow_steps s
WHERE s.unwritten IN (1, 3)
UNION ALL
SELECT s.task_uuid, s.moves_id + 1, s.step_uuid, 'enqueued', 'in_progress', 'claim', s.attempts, s.worker_uuid, NULL, NULL, NULL, s.last_attempted_at, NULL
FROM tasker.workflow_steps s
WHERE s.unwritten IN (2, 3);
COMMENT ON VIEW tasker.workflow_step_transitions IS 'History of the steps, a row for each move: contiguous and legal for each step, starting from pending. A failure''s error is in detail.';
