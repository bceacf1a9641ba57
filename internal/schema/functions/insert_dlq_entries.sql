-- insert_dlq_entries is the part of create_dlq_entries that may fail for the sake of a
-- snapshot: it opens the investigations that stand at some places of the arrays, none
-- of which is open, and returns their places and ids. p_failed says why the snapshots
-- are left out.
CREATE OR REPLACE FUNCTION tasker.insert_dlq_entries(
    p_places      bigint[],
    p_tasks       uuid[],
    p_reasons     tasker.dlq_reason[],
    p_details     text[],
    p_detected_by text,
    p_states      text[],
    p_since       timestamptz[],
    p_steps       uuid[],
    p_actor       text,
    p_notes       text,
    p_metadata    jsonb[],
    p_at          timestamptz,
    p_failed      text
) RETURNS TABLE (places bigint[], entries uuid[])
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    _tasks  uuid[];
    _states text[];
    _since  timestamptz[];
    _steps  uuid[];
BEGIN
    SELECT array_agg(p_tasks[n]), array_agg(p_states[n]), array_agg(p_since[n]), array_agg(p_steps[n])
    INTO _tasks, _states, _since, _steps
    FROM unnest(p_places) AS n;

    RETURN QUERY
    WITH opened AS (
        INSERT INTO tasker.tasks_dlq AS o (
            task_uuid, step_uuid, original_state, dlq_reason, detail_code, detected_by,
            dlq_timestamp, priority_at, task_snapshot, metadata, predecessor_uuid, created_at, updated_at,
            namespace, task_name, step_name, error_pattern, case_key
        )
        SELECT
            c.task_uuid, c.step_uuid, c.original_state, c.reason, c.detail_code, p_detected_by,
            p_at, p_at - make_interval(mins => tasker.dlq_base_priority(c.reason)),
            s.snapshot,
            c.metadata,
            (
                -- The newest. With a LIMIT, a planner that knows nothing of a new table goes through all by time.
                SELECT (array_agg(d.dlq_entry_uuid ORDER BY d.dlq_timestamp DESC))[1]
                FROM tasker.tasks_dlq d
                WHERE d.task_uuid = c.task_uuid
            ),
            p_at, p_at,
            t.namespace, t.name, f.step_name, f.error_pattern,
            tasker.case_key(t.namespace, t.name, c.reason, c.detail_code, f.step_name, f.error_pattern)
        FROM (
            SELECT p_tasks[n], p_reasons[n], p_details[n], p_states[n], p_steps[n], p_metadata[n]
            FROM unnest(p_places) AS n
        ) AS c (task_uuid, reason, detail_code, original_state, step_uuid, metadata)
        JOIN tasker.dlq_evidence(_tasks, _states, _since, _steps, p_detected_by, p_at, p_failed) s ON s.task_uuid = c.task_uuid
        JOIN tasker.tasks t ON t.task_uuid = c.task_uuid
        LEFT JOIN LATERAL tasker.dlq_failed_step(c.task_uuid, c.step_uuid) f ON true
        ON CONFLICT (task_uuid) WHERE resolution_status = 'pending' DO NOTHING
        RETURNING o.task_uuid, o.dlq_entry_uuid, o.metadata
    ),
    log AS (
        INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, to_status, notes, metadata, changed_at)
        SELECT o.dlq_entry_uuid, 'created', p_actor, 'pending', p_notes, o.metadata, p_at
        FROM opened o
        ORDER BY o.dlq_entry_uuid
    )
    SELECT coalesce(array_agg(n), '{}'), coalesce(array_agg(o.dlq_entry_uuid), '{}')
    FROM opened o
    JOIN unnest(p_places) AS n ON p_tasks[n] = o.task_uuid;
END
$$;
COMMENT ON FUNCTION tasker.insert_dlq_entries(bigint[], uuid[], tasker.dlq_reason[], text[], text, text[], timestamptz[], uuid[], text, text, jsonb[], timestamptz, text) IS 'The part of create_dlq_entries that may fail for the sake of a snapshot.';
