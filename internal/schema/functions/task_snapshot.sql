-- task_snapshot is the picture of a task that an investigation keeps: all that an
-- investigator needs if the rest is gone (design.md, section 5). In plpgsql,
-- because a session plans such a function once, and one in SQL each time.
CREATE OR REPLACE FUNCTION tasker.task_snapshot(
    p_task_uuid      uuid,
    p_original_state text,
    p_state_since    timestamptz,
    p_detected_by    text,
    p_at             timestamptz
) RETURNS jsonb
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT jsonb_build_object(
            'schema_version', 1,
            'task_uuid', t.task_uuid,
            'namespace', t.namespace,
            'task_name', t.name,
            'task_version', t.version,
            'current_state', t.state,
            'original_state', p_original_state,
            'time_in_state_minutes', round((extract(epoch FROM p_at - p_state_since) / 60)::numeric, 3),
            'threshold_minutes', round((extract(epoch FROM tasker.staleness_threshold(p_original_state, tt, st)
                + tasker.retry_rest(p_original_state, tt, (
                    SELECT min(s.next_retry_at) FROM tasker.workflow_steps s WHERE s.task_uuid = t.task_uuid
                ) - p_state_since)) / 60)::numeric, 3),
            'task_age_minutes', round((extract(epoch FROM p_at - t.created_at) / 60)::numeric, 3),
            'priority', t.priority,
            'detected_at', p_at,
            'detected_by', p_detected_by,
            'task', jsonb_build_object(
                'context', t.context,
                'initiator', t.initiator,
                'source_system', t.source_system,
                'reason', t.reason,
                'tags', to_jsonb(t.tags),
                'correlation_id', t.correlation_id,
                'parent_correlation_id', t.parent_correlation_id,
                'recreated_from', t.recreated_from,
                'created_at', t.created_at,
                'start_at', t.start_at,
                'max_duration_ends_at', t.ends_at
            ),
            'thresholds', jsonb_build_object(
                'waiting_for_dependencies_minutes', coalesce(tt.max_waiting_for_dependencies_minutes, st.waiting_for_dependencies_minutes),
                'waiting_for_retry_minutes', coalesce(tt.max_waiting_for_retry_minutes, st.waiting_for_retry_minutes),
                'steps_in_process_minutes', coalesce(tt.max_steps_in_process_minutes, st.steps_in_process_minutes),
                'max_duration_minutes', tt.max_duration_minutes
            ),
            'template', tt.configuration,
            'steps', (
                SELECT jsonb_agg(jsonb_build_object(
                    'step_uuid', s.step_uuid,
                    'name', s.name,
                    'type', s.step_type,
                    'handler', s.handler,
                    'state', s.state,
                    'state_since', s.state_since,
                    'dependencies', to_jsonb(s.parent_uuids),
                    'dependencies_open', s.parents_open,
                    'attempts', s.attempts,
                    'max_attempts', s.max_attempts,
                    'retryable', s.retryable,
                    'worker_uuid', s.worker_uuid,
                    'lease_expires_at', s.lease_expires_at,
                    'last_attempted_at', s.last_attempted_at,
                    'last_failure_at', s.last_failure_at,
                    'next_retry_at', s.next_retry_at,
                    'completed_at', s.completed_at,
                    'results', s.results,
                    'error', s.error,
                    'failures', (
                        SELECT jsonb_agg(jsonb_build_object(
                            'attempt', x.attempt,
                            'at', x.created_at,
                            'event', x.event,
                            'worker_uuid', x.worker_uuid,
                            'error', x.detail
                        ) ORDER BY x.transition_id)
                        FROM tasker.workflow_step_transitions x
                        WHERE x.task_uuid = t.task_uuid AND x.step_uuid = s.step_uuid AND x.to_state = 'error'
                    )
                ) ORDER BY s.step_uuid)
                FROM tasker.workflow_steps s
                WHERE s.task_uuid = t.task_uuid
            ),
            'edges', (
                SELECT jsonb_agg(jsonb_build_object('from', p.step_uuid, 'to', s.step_uuid) ORDER BY p.step_uuid, s.step_uuid)
                FROM tasker.workflow_steps s
                CROSS JOIN LATERAL unnest(s.parent_uuids) AS p (step_uuid)
                WHERE s.task_uuid = t.task_uuid
            ),
            'transitions', (
                SELECT jsonb_agg(to_jsonb(x) - 'task_uuid' ORDER BY x.transition_id)
                FROM (
                    SELECT *
                    FROM tasker.task_transitions
                    WHERE task_uuid = t.task_uuid
                    ORDER BY transition_id DESC
                    LIMIT 50
                ) x
            )
        )
        FROM tasker.tasks t
        JOIN tasker.task_templates tt USING (template_uuid)
        CROSS JOIN tasker.staleness_thresholds st
        WHERE t.task_uuid = p_task_uuid
    );
END
$$;
COMMENT ON FUNCTION tasker.task_snapshot(uuid, text, timestamptz, text, timestamptz) IS 'The picture of a task that an investigation keeps: task, template, thresholds, steps with every failure, edges, recent transitions.';
