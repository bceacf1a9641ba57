-- name: lockCompensable
SELECT t.task_uuid, t.template_uuid, t.namespace, t.state, coalesce(t.phase, '') AS phase, coalesce(t.outcome, '') AS outcome, t.priority,
    coalesce(t.context_bytes, octet_length(t.context::text)) AS context_bytes
FROM tasker.tasks t
WHERE t.task_uuid = $1
FOR NO KEY UPDATE;

-- name: doneSteps
SELECT s.step_uuid, s.name, coalesce(s.completed_at, s.state_since) AS completed_at, coalesce(s.results_bytes, octet_length((s.results -> 'result')::text), 0) AS result_bytes
FROM tasker.workflow_steps s
WHERE s.task_uuid = $1 AND s.state = 'complete' AND s.name = ANY ($2);

-- name: unconcluded
SELECT s.task_uuid, s.step_uuid
FROM tasker.workflow_steps s
WHERE s.task_uuid = $1 AND s.name = ANY ($2)
  AND (s.state || '' = 'enqueued_for_orchestration' OR s.child_task_uuid IS NOT NULL AND s.state || '' = 'pending')
ORDER BY s.step_uuid;

-- name: linkUndone
UPDATE tasker.workflow_steps s
SET child_uuids = s.child_uuids || u.undo_uuid, updated_at = clock_timestamp()
FROM unnest($2::uuid[], $3::uuid[]) AS u (step_uuid, undo_uuid)
WHERE s.task_uuid = $1 AND s.step_uuid = u.step_uuid;

-- name: beginCompensation
-- Restarts the total time of the task.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
moved AS (
    UPDATE tasker.tasks t
    SET state = 'steps_in_process', state_since = c.at, updated_at = c.at, phase = 'compensating',
        warn_at = c.at + 0.8 * h.threshold, stale_at = c.at + h.threshold, ends_at = c.at + make_interval(mins => tt.max_duration_minutes)
    FROM tasker.task_templates tt
    CROSS JOIN clock c
    JOIN tasker.staleness_thresholds st ON st.only_row
    CROSS JOIN LATERAL (SELECT tasker.staleness_threshold('steps_in_process', tt, st) AS threshold) h
    WHERE t.task_uuid = $1 AND t.state = $2 AND tt.template_uuid = t.template_uuid
    RETURNING t.task_uuid, t.state_since
)
INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, actor, reason, created_at)
SELECT m.task_uuid, e.from_state, e.to_state, e.event, nullif($3, ''), nullif($4, ''), m.state_since
FROM moved m
CROSS JOIN unnest($5::text[], $6::text[], $7::text[]) WITH ORDINALITY AS e (from_state, to_state, event, place)
ORDER BY e.place;
