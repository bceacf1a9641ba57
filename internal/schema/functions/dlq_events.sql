-- dlq_events is what events tell of investigations, one for each line of their
-- history: who and why, and what just happened. They carry no snapshot: whoever is
-- told asks for it. In sets, in plpgsql and by the text of JSON for the same reasons
-- as task_snapshots.
CREATE OR REPLACE FUNCTION tasker.dlq_events(p_changes bigint[])
RETURNS TABLE (history_id bigint, event text, task_uuid uuid, dlq_entry_uuid uuid, data jsonb, changed_at timestamptz)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    _rules tasker.redaction;
    _words text;
    _plain boolean := false; -- no text of these events holds anything that must not be shown
BEGIN
    SELECT * INTO _rules FROM tasker.redaction r WHERE r.only_row;
    _words := tasker.document_pattern(_rules.key_words);
    -- To begin a search costs more than to go on with it: all texts are searched at once, unless there is very much of them.
    IF _rules.paths = '[]' THEN
        SELECT coalesce(sum(coalesce(pg_column_size(s.error), 0) + coalesce(pg_column_size(h.metadata), 0) + coalesce(octet_length(h.notes), 0)), 0) < 1048576
        INTO _plain
        FROM unnest(p_changes) AS c (history_id)
        JOIN tasker.tasks_dlq_history h ON h.history_id = c.history_id
        JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = h.dlq_entry_uuid
        LEFT JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid;
    END IF;
    IF _plain THEN -- an error as redact_error searches it
        SELECT coalesce(string_agg(concat_ws(E'\n', h.notes, h.metadata::text, '{"steps": [{"error": ' || s.error::text || ', "failures": [{"error": '), E'\n'), '') !~ _words
        INTO _plain
        FROM unnest(p_changes) AS c (history_id)
        JOIN tasker.tasks_dlq_history h ON h.history_id = c.history_id
        JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = h.dlq_entry_uuid
        LEFT JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid;
    END IF;
    RETURN QUERY
    SELECT h.history_id, h.event, d.task_uuid, d.dlq_entry_uuid, row_to_json(x)::jsonb, h.changed_at
    FROM unnest(p_changes) AS c (history_id)
    JOIN tasker.tasks_dlq_history h ON h.history_id = c.history_id
    JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = h.dlq_entry_uuid
    JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
    CROSS JOIN LATERAL (
        SELECT
            h.event, h.actor, h.from_status, h.to_status,
            CASE WHEN _plain OR h.notes !~ _words THEN h.notes ELSE tasker.redact_text(h.notes, _rules.text_patterns) END AS notes,
            CASE
                WHEN _plain OR h.metadata::text !~ _words THEN h.metadata
                ELSE tasker.redact_keys(h.metadata, _rules.key_words, _rules.key_pattern, NULL, 0, _rules.text_patterns)
            END AS metadata,
            h.changed_at AS at
    ) change
    CROSS JOIN LATERAL (
        SELECT
            1 AS schema_version, CASE WHEN h.event = 'created' THEN 'STEP_DEAD_LETTERED' END AS analytics_type,
            d.dlq_entry_uuid, d.task_uuid, d.step_uuid,
            t.namespace, t.name AS task_name, t.version AS task_version, t.correlation_id, t.state AS current_task_state,
            d.original_state, d.dlq_reason, d.detail_code,
            tasker.dlq_severity(d.dlq_reason, d.detail_code) AS severity,
            round(extract(epoch FROM d.dlq_timestamp - d.priority_at) / 60)::integer AS base_priority, d.detected_by, d.dlq_timestamp, h.to_status AS resolution_status,
            d.resolved_at, d.resolved_by, d.recovered_at, d.predecessor_uuid, change,
            CASE WHEN d.step_uuid IS NOT NULL THEN (
                SELECT row_to_json(f)
                FROM (
                    SELECT
                        s.name, s.handler, s.attempts, s.max_attempts,
                        CASE WHEN s.error IS NOT NULL THEN coalesce(e.shown ->> 'type', '[redacted]') END AS error_type,
                        CASE WHEN s.error IS NOT NULL THEN coalesce(e.shown ->> 'message', '[redacted]') END AS error_message,
                        e.shown ->> 'fingerprint' AS error_fingerprint, s.error ->> 'worker_uuid' AS worker_uuid, s.last_attempted_at
                    FROM tasker.workflow_steps s
                    CROSS JOIN LATERAL (SELECT CASE WHEN _plain THEN s.error ELSE tasker.redact_error(s.error) END AS shown OFFSET 0) e
                    WHERE s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
                ) f
            ) END AS step
    ) x
    ORDER BY h.history_id;
END
$$;
COMMENT ON FUNCTION tasker.dlq_events(bigint[]) IS 'What events tell of investigations, one for each line of their history.';
