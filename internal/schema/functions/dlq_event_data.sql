-- dlq_event_data is what an event tells of an investigation: who and why, and
-- what just happened to it. It carries no snapshot: whoever is told asks for it. In
-- plpgsql for the same reason as task_snapshot.
CREATE OR REPLACE FUNCTION tasker.dlq_event_data(
    p_entry  tasker.tasks_dlq,
    p_task   tasker.tasks,
    p_change tasker.tasks_dlq_history
) RETURNS jsonb
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT jsonb_build_object(
            'schema_version', 1,
            'analytics_type', CASE WHEN p_change.event = 'created' THEN 'STEP_DEAD_LETTERED' END,
            'dlq_entry_uuid', p_entry.dlq_entry_uuid,
            'task_uuid', p_entry.task_uuid,
            'step_uuid', p_entry.step_uuid,
            'namespace', p_task.namespace,
            'task_name', p_task.name,
            'task_version', p_task.version,
            'correlation_id', p_task.correlation_id,
            'current_task_state', p_task.state,
            'original_state', p_entry.original_state,
            'dlq_reason', p_entry.dlq_reason,
            'detail_code', p_entry.detail_code,
            'detected_by', p_entry.detected_by,
            'dlq_timestamp', p_entry.dlq_timestamp,
            'resolution_status', p_change.to_status,
            'resolved_at', p_entry.resolved_at,
            'resolved_by', p_entry.resolved_by,
            'recovered_at', p_entry.recovered_at,
            'predecessor_uuid', p_entry.predecessor_uuid,
            'change', jsonb_build_object(
                'event', p_change.event,
                'actor', p_change.actor,
                'from_status', p_change.from_status,
                'to_status', p_change.to_status,
                'notes', p_change.notes,
                'metadata', tasker.redact_keys(p_change.metadata, r.key_words, r.key_pattern),
                'at', p_change.changed_at
            ),
            'step', (
                SELECT jsonb_build_object(
                    'name', s.name,
                    'handler', s.handler,
                    'attempts', s.attempts,
                    'max_attempts', s.max_attempts,
                    'error_type', CASE WHEN s.error IS NOT NULL THEN coalesce(e.shown ->> 'type', '[redacted]') END,
                    'error_message', CASE WHEN s.error IS NOT NULL THEN coalesce(e.shown ->> 'message', '[redacted]') END
                )
                FROM tasker.workflow_steps s
                CROSS JOIN LATERAL (SELECT tasker.redact_error(s.error) AS shown) e
                WHERE s.task_uuid = p_entry.task_uuid AND s.step_uuid = p_entry.step_uuid
            )
        )
        FROM tasker.redaction r
        WHERE r.only_row
    );
END
$$;
COMMENT ON FUNCTION tasker.dlq_event_data(tasker.tasks_dlq, tasker.tasks, tasker.tasks_dlq_history) IS 'What an event tells of an investigation and of what just happened to it.';
