-- create_dlq_entry opens an investigation of a task, with the picture of the
-- task as it stands. When one is open already it returns null, and what has
-- failed meanwhile goes into the history of that one, with its error: evidence is
-- not lost because somebody is at work. A task that had recovered has not, then. The transaction that makes a task stuck,
-- the sweep and an operator all call it, so an entry looks the same whoever found
-- the task.
CREATE OR REPLACE FUNCTION tasker.create_dlq_entry(
    p_task_uuid      uuid,
    p_reason         tasker.dlq_reason,
    p_detail_code    text,
    p_detected_by    text,
    p_original_state text,
    p_state_since    timestamptz DEFAULT NULL,
    p_step_uuid      uuid DEFAULT NULL,
    p_actor          text DEFAULT 'tasker',
    p_notes          text DEFAULT NULL,
    p_metadata       jsonb DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql
AS $$
DECLARE
    _at    timestamptz := clock_timestamp();
    _entry uuid;
BEGIN
    -- The task comes before its entries: whoever works on it holds it as well.
    PERFORM FROM tasker.tasks t WHERE t.task_uuid = p_task_uuid FOR NO KEY UPDATE;

    INSERT INTO tasker.tasks_dlq (
        task_uuid, step_uuid, original_state, dlq_reason, detail_code, detected_by,
        dlq_timestamp, priority_at, task_snapshot, metadata, predecessor_uuid, created_at, updated_at
    )
    SELECT
        t.task_uuid, p_step_uuid, p_original_state, p_reason, p_detail_code, p_detected_by,
        _at, _at - make_interval(mins => tasker.dlq_base_priority(p_reason)),
        tasker.redact_snapshot(
            tasker.task_snapshot(t.task_uuid, p_original_state, coalesce(p_state_since, t.state_since), p_detected_by, _at)),
        p_metadata,
        (
            SELECT d.dlq_entry_uuid
            FROM tasker.tasks_dlq d
            WHERE d.task_uuid = t.task_uuid
            ORDER BY d.dlq_timestamp DESC
            LIMIT 1
        ),
        _at, _at
    FROM tasker.tasks t
    WHERE t.task_uuid = p_task_uuid
    ON CONFLICT (task_uuid) WHERE resolution_status = 'pending' DO NOTHING
    RETURNING dlq_entry_uuid INTO _entry;

    -- Somebody looks into it now, or did already. Asked with IS NOT NULL, the planner
    -- would read the whole index of unattended tasks, because it takes it for empty.
    UPDATE tasker.tasks t SET attend_by = NULL WHERE t.task_uuid = p_task_uuid AND num_nonnulls(t.attend_by) = 1;

    IF _entry IS NOT NULL THEN
        INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, to_status, notes, metadata, changed_at)
        VALUES (_entry, 'created', p_actor, 'pending', p_notes, p_metadata, _at);
    ELSIF p_step_uuid IS NOT NULL THEN
        UPDATE tasker.tasks_dlq d SET recovered_at = NULL, updated_at = _at
        WHERE d.task_uuid = p_task_uuid AND d.resolution_status = 'pending';
        INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, metadata, changed_at)
        SELECT d.dlq_entry_uuid, 'step_failed', p_actor, 'pending', 'pending',
            format('step %s failed for good: %s', s.name, coalesce(e.shown ->> 'message', '[redacted]')),
            jsonb_build_object('step_uuid', s.step_uuid, 'dlq_reason', p_reason, 'detail_code', p_detail_code,
                'error', e.shown), _at
        FROM tasker.tasks_dlq d
        JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = p_step_uuid
        CROSS JOIN LATERAL (SELECT tasker.redact_error(s.error) AS shown) e
        WHERE d.task_uuid = p_task_uuid AND d.resolution_status = 'pending';
    ELSIF p_detected_by = 'sweep' THEN
        WITH again AS (
            UPDATE tasker.tasks_dlq d SET recovered_at = NULL, updated_at = _at
            WHERE d.task_uuid = p_task_uuid AND d.resolution_status = 'pending' AND d.recovered_at IS NOT NULL
            RETURNING d.dlq_entry_uuid
        )
        INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, metadata, changed_at)
        SELECT a.dlq_entry_uuid, 'stuck_again', p_actor, 'pending', 'pending',
            format('the task had gone on and stands still again, in %s', p_original_state), p_metadata, _at
        FROM again a;
    END IF;
    RETURN _entry;
END
$$;
COMMENT ON FUNCTION tasker.create_dlq_entry(uuid, tasker.dlq_reason, text, text, text, timestamptz, uuid, text, text, jsonb) IS 'Opens an investigation of a task; null when one is open already.';
