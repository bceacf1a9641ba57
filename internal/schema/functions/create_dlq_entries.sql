-- create_dlq_entries opens investigations of tasks, with the picture of each as it
-- stands; each task is named once. A task that has an open one gets no other: what
-- has failed meanwhile goes into the history of that one, with its error, because
-- evidence is not lost when somebody is at work; and a task that had recovered has
-- not, then. The transaction that makes a task stuck, the sweep and an operator all
-- come here, so an entry looks the same whoever found the task.
CREATE OR REPLACE FUNCTION tasker.create_dlq_entries(
    p_tasks       uuid[],
    p_reasons     tasker.dlq_reason[],
    p_details     text[],
    p_detected_by text,
    p_states      text[],
    p_since       timestamptz[],
    p_steps       uuid[],
    p_actor       text,
    p_notes       text,
    p_metadata    jsonb[]
) RETURNS TABLE (task_uuid uuid, dlq_entry_uuid uuid)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    _at      timestamptz := clock_timestamp();
    _opened  uuid[];
    _entries uuid[];
BEGIN
    -- Tasks come before their entries: whoever works on them holds them as well.
    PERFORM FROM tasker.tasks t WHERE t.task_uuid = ANY (p_tasks) ORDER BY t.task_uuid FOR NO KEY UPDATE;

    WITH opened AS (
        INSERT INTO tasker.tasks_dlq AS o (
            task_uuid, step_uuid, original_state, dlq_reason, detail_code, detected_by,
            dlq_timestamp, priority_at, task_snapshot, metadata, predecessor_uuid, created_at, updated_at,
            namespace, task_name, step_name, error_pattern, case_key
        )
        SELECT
            c.task_uuid, c.step_uuid, c.original_state, c.reason, c.detail_code, p_detected_by,
            _at, _at - make_interval(mins => tasker.dlq_base_priority(c.reason)),
            CASE WHEN s.plain THEN s.snapshot ELSE tasker.redact_snapshot(s.snapshot) END,
            c.metadata,
            (
                -- The newest. With a LIMIT, a planner that knows nothing of a new table goes through all by time.
                SELECT (array_agg(d.dlq_entry_uuid ORDER BY d.dlq_timestamp DESC))[1]
                FROM tasker.tasks_dlq d
                WHERE d.task_uuid = c.task_uuid
            ),
            _at, _at,
            t.namespace, t.name, f.step_name, f.error_pattern,
            tasker.case_key(t.namespace, t.name, c.reason, c.detail_code, f.step_name, f.error_pattern)
        FROM unnest(p_tasks, p_reasons, p_details, p_states, p_steps, p_metadata)
            AS c (task_uuid, reason, detail_code, original_state, step_uuid, metadata)
        JOIN tasker.task_snapshots(p_tasks, p_states, p_since, p_detected_by, _at) s ON s.task_uuid = c.task_uuid
        JOIN tasker.tasks t ON t.task_uuid = c.task_uuid
        LEFT JOIN LATERAL (
            SELECT w.name AS step_name, tasker.error_pattern(tasker.redact_error(w.error) ->> 'message') AS error_pattern
            FROM tasker.workflow_steps w
            WHERE w.task_uuid = c.task_uuid AND w.step_uuid = c.step_uuid
            OFFSET 0 -- the error is searched for secrets once
        ) f ON true
        ON CONFLICT (task_uuid) WHERE resolution_status = 'pending' DO NOTHING
        RETURNING o.task_uuid, o.dlq_entry_uuid, o.metadata
    ),
    log AS (
        INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, to_status, notes, metadata, changed_at)
        SELECT o.dlq_entry_uuid, 'created', p_actor, 'pending', p_notes, o.metadata, _at
        FROM opened o
        ORDER BY o.dlq_entry_uuid
    )
    SELECT coalesce(array_agg(o.task_uuid), '{}'), coalesce(array_agg(o.dlq_entry_uuid), '{}') INTO _opened, _entries FROM opened o;

    -- Somebody looks into them now, or did already. Asked with IS NOT NULL, the
    -- planner would read the whole index of unattended tasks, which it takes for empty.
    UPDATE tasker.tasks t SET attend_by = NULL WHERE t.task_uuid = ANY (p_tasks) AND num_nonnulls(t.attend_by) = 1;

    IF cardinality(_opened) < cardinality(p_tasks) THEN
        WITH stuck AS MATERIALIZED (
            SELECT d.dlq_entry_uuid, d.recovered_at, c.*
            FROM unnest(p_tasks, p_reasons, p_details, p_states, p_steps, p_metadata)
                AS c (task_uuid, reason, detail_code, original_state, step_uuid, metadata)
            JOIN tasker.tasks_dlq d ON d.task_uuid = c.task_uuid AND d.resolution_status = 'pending'
            WHERE c.task_uuid <> ALL (_opened)
              AND (c.step_uuid IS NOT NULL OR (p_detected_by = 'sweep' AND d.recovered_at IS NOT NULL))
        ),
        back AS (
            UPDATE tasker.tasks_dlq d SET recovered_at = NULL, updated_at = _at
            FROM stuck k
            WHERE d.dlq_entry_uuid = k.dlq_entry_uuid
        )
        INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, metadata, changed_at)
        SELECT k.dlq_entry_uuid, CASE WHEN k.step_uuid IS NULL THEN 'stuck_again' ELSE 'step_failed' END, p_actor, 'pending', 'pending',
            CASE
                WHEN k.step_uuid IS NULL THEN format('the task had gone on and stands still again, in %s', k.original_state)
                ELSE format('step %s failed for good: %s', s.name, coalesce(e.shown ->> 'message', '[redacted]'))
            END,
            CASE
                WHEN k.step_uuid IS NULL THEN k.metadata
                ELSE jsonb_build_object('step_uuid', s.step_uuid, 'dlq_reason', k.reason, 'detail_code', k.detail_code, 'error', e.shown)
            END, _at
        FROM stuck k
        LEFT JOIN tasker.workflow_steps s ON s.task_uuid = k.task_uuid AND s.step_uuid = k.step_uuid
        CROSS JOIN LATERAL (SELECT tasker.redact_error(s.error) AS shown) e
        ORDER BY k.dlq_entry_uuid;
    END IF;
    RETURN QUERY SELECT u.task_uuid, u.dlq_entry_uuid FROM unnest(_opened, _entries) AS u (task_uuid, dlq_entry_uuid);
END
$$;
COMMENT ON FUNCTION tasker.create_dlq_entries(uuid[], tasker.dlq_reason[], text[], text, text[], timestamptz[], uuid[], text, text, jsonb[]) IS 'Opens investigations of tasks; returns those that it opened.';
