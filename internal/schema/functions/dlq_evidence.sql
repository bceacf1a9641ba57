-- dlq_evidence is the snapshot of each task as an investigation keeps it: without what
-- must not be shown. With p_failed, which says why the snapshot could not be built, it
-- is only what is known without reading the task's documents: an investigation opens
-- whatever becomes of its snapshot.
CREATE OR REPLACE FUNCTION tasker.dlq_evidence(
    p_tasks           uuid[],
    p_original_states text[],
    p_since           timestamptz[],
    p_steps           uuid[],
    p_detected_by     text,
    p_at              timestamptz,
    p_failed          text DEFAULT NULL
) RETURNS TABLE (task_uuid uuid, snapshot jsonb)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    IF p_failed IS NULL THEN
        RETURN QUERY
        SELECT s.task_uuid, CASE WHEN s.plain THEN s.snapshot ELSE tasker.redact_snapshot(s.snapshot) END
        FROM tasker.task_snapshots(p_tasks, p_original_states, p_since, p_detected_by, p_at) s;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT t.task_uuid, tasker.redact_snapshot(row_to_json(x)::jsonb)
    FROM unnest(p_tasks, p_original_states, p_since, p_steps) AS c (task_uuid, original_state, since, step_uuid)
    JOIN tasker.tasks t ON t.task_uuid = c.task_uuid
    CROSS JOIN LATERAL (
        SELECT
            1 AS schema_version, left(p_failed, 500) AS snapshot_failed,
            t.task_uuid, t.namespace, t.name AS task_name, t.version AS task_version,
            t.state AS current_state, c.original_state,
            round((extract(epoch FROM p_at - coalesce(c.since, t.state_since)) / 60)::numeric, 3) AS time_in_state_minutes,
            round((extract(epoch FROM p_at - t.created_at) / 60)::numeric, 3) AS task_age_minutes,
            t.priority, p_at AS detected_at, p_detected_by AS detected_by,
            (
                SELECT json_agg(f)
                FROM (
                    SELECT s.step_uuid, s.name, CASE WHEN s.is_decision THEN 'decision' ELSE s.step_type END AS type, s.handler, s.state, s.state_since, s.attempts, s.max_attempts,
                        s.worker_uuid, s.last_failure_at,
                        json_build_object('omitted', true, 'type', left(s.error ->> 'type', 100), 'message', left(s.error ->> 'message', 500),
                            'retryable', s.error -> 'retryable', 'attempt', s.error -> 'attempt',
                            'read_at', '/v1/tasks/' || t.task_uuid || '/workflow_steps/' || s.step_uuid) AS error
                    FROM tasker.workflow_steps s
                    WHERE s.task_uuid = t.task_uuid AND s.step_uuid = c.step_uuid
                ) f
            ) AS steps
    ) x;
END
$$;
COMMENT ON FUNCTION tasker.dlq_evidence(uuid[], text[], timestamptz[], uuid[], text, timestamptz, text) IS 'The snapshot of each task as an investigation keeps it, or only the facts when it could not be built.';
