-- snapshot_cuts says what is cut of the snapshots of those tasks whose documents are
-- large, or may be: a compressed one has any size when it is read. It asks only for
-- the sizes of the documents as they are stored, and returns null when there is no
-- such task.
CREATE OR REPLACE FUNCTION tasker.snapshot_cuts(p_tasks uuid[]) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    _task uuid;
    _cuts jsonb;
BEGIN
    FOR _task IN
        SELECT t.task_uuid
        FROM unnest(p_tasks) AS c (task_uuid)
        JOIN tasker.tasks t ON t.task_uuid = c.task_uuid
        CROSS JOIN LATERAL (SELECT tasker.snapshot_items(t.task_uuid) AS items OFFSET 0) z
        CROSS JOIN LATERAL (
            SELECT sum(pg_column_size(s.results)) AS results, sum(pg_column_size(s.error)) AS errors,
                count(pg_column_compression(s.results)) + count(pg_column_compression(s.error)) AS compressed
            FROM tasker.workflow_steps s
            WHERE s.task_uuid = t.task_uuid AND (s.map_step_uuid IS NULL OR s.step_uuid = ANY (z.items))
        ) s
        CROSS JOIN LATERAL (
            SELECT sum(pg_column_size(h.detail)) AS failures, count(pg_column_compression(h.detail)) AS compressed
            FROM tasker.workflow_step_transitions h
            WHERE h.task_uuid = t.task_uuid AND h.to_state = 'error' AND (z.items IS NULL OR h.step_uuid = ANY (z.items) OR EXISTS (
                SELECT FROM tasker.workflow_steps p WHERE p.task_uuid = h.task_uuid AND p.step_uuid = h.step_uuid AND p.map_step_uuid IS NULL))
        ) f
        WHERE s.compressed + f.compressed + num_nonnulls(pg_column_compression(t.context)) > 0
           OR coalesce(s.results, 0) + coalesce(s.errors, 0) + coalesce(f.failures, 0) + pg_column_size(t.context) > tasker.max_snapshot_bytes()
    LOOP
        _cuts := coalesce(_cuts, '{}') || tasker.task_snapshot_cuts(_task);
    END LOOP;
    RETURN _cuts;
END
$$;
COMMENT ON FUNCTION tasker.snapshot_cuts(uuid[]) IS 'What is cut of the snapshots of large tasks: see task_snapshot_cuts. Null when none is large.';
