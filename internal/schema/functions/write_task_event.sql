-- write_task_event adds an event of a task to the outbox if a subscription selects it. The
-- subscriptions are those of the server: the setting tasker.task_events, an array of
-- {topics, namespace, template, include_result, include_context, max_bytes}. Payloads are
-- included if one of the selecting subscriptions includes them. They are redacted like
-- evidence; one that is too large is omitted.
CREATE OR REPLACE FUNCTION tasker.write_task_event(
    p_topic  text,
    p_task   uuid,
    p_step   uuid,
    p_change jsonb
) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    _task   record;
    _wanted record;
    _data   jsonb;
BEGIN
    SELECT t.namespace, t.name, t.version, t.state, t.phase, t.outcome, t.correlation_id, t.parent_task_uuid, t.schedule_uuid, t.created_at INTO _task
    FROM tasker.tasks t
    WHERE t.task_uuid = p_task;
    SELECT count(*) AS subscriptions, bool_or((f.filter ->> 'include_result')::boolean) AS result, bool_or((f.filter ->> 'include_context')::boolean) AS context,
        max((f.filter ->> 'max_bytes')::integer) AS bytes
    INTO _wanted
    FROM jsonb_array_elements(current_setting('tasker.task_events')::jsonb) AS f (filter)
    WHERE f.filter -> 'topics' ? p_topic
      AND coalesce(f.filter ->> 'namespace', _task.namespace) = _task.namespace AND coalesce(f.filter ->> 'template', _task.name) = _task.name;
    IF _wanted.subscriptions = 0 THEN
        RETURN;
    END IF;
    _data := jsonb_build_object(
        'schema_version', 1, 'task_uuid', p_task, 'namespace', _task.namespace, 'task_name', _task.name, 'task_version', _task.version,
        'correlation_id', _task.correlation_id, 'parent_task_uuid', _task.parent_task_uuid, 'schedule_uuid', _task.schedule_uuid, 'created_at', _task.created_at,
        'task_state', _task.state, 'phase', _task.phase, 'outcome', _task.outcome,
        'change', p_change - 'dlq_entry_uuid' || jsonb_build_object('reason', tasker.redact_note(p_change ->> 'reason')));
    IF p_topic = 'task.failed' THEN
        _data := _data || jsonb_build_object('permanent', p_change ? 'dlq_entry_uuid', 'dlq_entry_uuid', p_change -> 'dlq_entry_uuid');
    END IF;
    IF p_step IS NOT NULL THEN
        _data := _data || (
            SELECT jsonb_build_object('step', jsonb_build_object(
                'step_uuid', s.step_uuid, 'name', s.name, 'handler', s.handler, 'attempts', s.attempts, 'max_attempts', s.max_attempts,
                'map_step_uuid', s.map_step_uuid, 'item_ordinal', s.item_ordinal,
                'error_type', CASE WHEN s.error IS NOT NULL THEN coalesce(e.shown ->> 'type', '[redacted]') END,
                'error_message', CASE WHEN s.error IS NOT NULL THEN coalesce(left(e.shown ->> 'message', 4096), '[redacted]') END,
                'error_fingerprint', e.shown ->> 'fingerprint', 'worker_uuid', s.error ->> 'worker_uuid', 'last_attempted_at', s.last_attempted_at))
            FROM tasker.workflow_steps s
            CROSS JOIN LATERAL (SELECT tasker.redact_error(s.error) AS shown OFFSET 0) e
            WHERE s.task_uuid = p_task AND s.step_uuid = p_step
        );
    END IF;
    IF _wanted.context OR _wanted.result AND p_topic = 'task.completed' THEN
        _data := _data || tasker.task_event_payload(p_task, _wanted.context, _wanted.result AND p_topic = 'task.completed', _wanted.bytes);
    END IF;
    INSERT INTO tasker.outbox (topic, task_uuid, data, created_at, namespace)
    VALUES (p_topic, p_task, _data, (p_change ->> 'at')::timestamptz, _task.namespace);
END
$$;
COMMENT ON FUNCTION tasker.write_task_event(text, uuid, uuid, jsonb) IS 'Adds an event of a task to the outbox if a subscription selects it.';
