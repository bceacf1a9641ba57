-- measure_inputs fills in the unknown sizes of the inputs of enqueued steps, such as
-- those that moved to another version of their template, until the time is over, and returns how many steps are
-- measured by then. Documents are spelled out to be measured, which takes long for
-- large ones: each call measures at least one, and keeps what it has measured. Rows
-- that somebody else holds are left to them. A context that is larger than a whole
-- claim can never be handed out, and counts as larger than any limit.
CREATE OR REPLACE FUNCTION tasker.measure_inputs(
    p_tasks       uuid[],
    p_steps       uuid[],
    p_max_context bigint,
    p_time        interval
) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    _until   timestamptz := clock_timestamp() + p_time;
    _working boolean := false;
    _count   integer := 0;
    _context bigint;
    _results bigint;
    _bytes   bigint;
    _apart   uuid[];
    _step    record;
    _parent  record;
BEGIN
    FOR _step IN
        SELECT s.task_uuid, s.step_uuid, s.map_step_uuid, s.parent_uuids, e.namespace, e.handler, e.priority, e.state_since
        FROM unnest(p_tasks, p_steps) AS u (task_uuid, step_uuid)
        JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
        CROSS JOIN LATERAL (
            SELECT * FROM (
                SELECT r.namespace, r.handler, r.priority, r.state_since
                FROM tasker.ready_steps r
                WHERE r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since
                  AND r.step_uuid = s.step_uuid AND r.task_uuid = s.task_uuid AND num_nulls(r.inputs_bytes) = 1
                FOR NO KEY UPDATE SKIP LOCKED
            ) r
            UNION ALL
            SELECT * FROM (
                SELECT h.namespace, h.handler, h.priority, h.state_since
                FROM tasker.held_steps h
                WHERE h.task_uuid = s.task_uuid AND h.step_uuid = s.step_uuid AND h.state_since = s.state_since AND num_nulls(h.inputs_bytes) = 1
                FOR NO KEY UPDATE SKIP LOCKED
            ) h
        ) e
    LOOP
        FOR _parent IN
            SELECT p.step_uuid
            FROM tasker.workflow_steps p
            WHERE p.task_uuid = _step.task_uuid AND p.step_uuid = ANY (_step.parent_uuids) AND p.results IS NOT NULL AND p.results_bytes IS NULL
            FOR NO KEY UPDATE SKIP LOCKED
        LOOP
            IF _working AND clock_timestamp() >= _until THEN
                RETURN _count;
            END IF;
            _working := true;
            UPDATE tasker.workflow_steps p
            SET results_bytes = octet_length((p.results -> 'result')::text)
            WHERE p.task_uuid = _step.task_uuid AND p.step_uuid = _parent.step_uuid;
        END LOOP;
        IF _working AND clock_timestamp() >= _until THEN
            RETURN _count;
        END IF;
        _working := true;
        SELECT coalesce(m.context_bytes, t.context_bytes, octet_length(t.context::text)), m.by_reference INTO _context, _apart
        FROM tasker.tasks t
        LEFT JOIN tasker.map_inputs m ON m.task_uuid = t.task_uuid AND m.step_uuid = _step.map_step_uuid
        WHERE t.task_uuid = _step.task_uuid;
        -- One that another session measures now has no size yet: then neither has the sum.
        SELECT CASE WHEN count(*) = count(p.results_bytes) THEN coalesce(sum(p.results_bytes), 0) END INTO _results
        FROM tasker.workflow_steps p
        WHERE p.task_uuid = _step.task_uuid AND p.step_uuid = ANY (_step.parent_uuids) AND p.results IS NOT NULL
          AND p.step_uuid <> ALL (coalesce(_apart, '{}'));
        UPDATE tasker.workflow_steps s
        SET inputs_bytes = CASE WHEN _context > p_max_context THEN 1099511627776 ELSE _context + _results + coalesce(octet_length(s.item::text), 0) END
        WHERE s.task_uuid = _step.task_uuid AND s.step_uuid = _step.step_uuid
        RETURNING s.inputs_bytes INTO _bytes;
        UPDATE tasker.ready_steps r
        SET inputs_bytes = _bytes
        WHERE r.namespace = _step.namespace AND r.handler = _step.handler AND r.priority = _step.priority AND r.state_since = _step.state_since
          AND r.step_uuid = _step.step_uuid;
        UPDATE tasker.held_steps h
        SET inputs_bytes = _bytes
        WHERE h.task_uuid = _step.task_uuid AND h.step_uuid = _step.step_uuid AND h.state_since = _step.state_since;
        _count := _count + 1;
    END LOOP;
    RETURN _count;
END
$$;
COMMENT ON FUNCTION tasker.measure_inputs(uuid[], uuid[], bigint, interval) IS 'Measures the inputs of enqueued steps whose size is unknown, within a time; returns how many steps it measured.';
