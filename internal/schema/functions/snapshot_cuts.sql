-- snapshot_cuts says what is not in the snapshots of those tasks: of tasks with items which
-- steps are shown (shown_steps), and what is cut of those whose documents are large, or may
-- be: a compressed one has any size when it is read. Of the documents it asks only for the
-- sizes as they are stored. It returns null when there is no such task.
CREATE OR REPLACE FUNCTION tasker.snapshot_cuts(p_tasks uuid[]) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    _cuts  jsonb := tasker.shown_steps(p_tasks);
    _shown uuid[] := tasker.all_shown(_cuts);
    _task  record;
BEGIN
    FOR _task IN
        SELECT t.task_uuid, z.shown
        FROM unnest(p_tasks) AS c (task_uuid)
        JOIN tasker.tasks t ON t.task_uuid = c.task_uuid
        CROSS JOIN LATERAL (SELECT translate((_cuts -> ('steps ' || t.task_uuid))::text, '[]"', '{}')::uuid[] AS shown OFFSET 0) z
        CROSS JOIN LATERAL (
            SELECT sum(pg_column_size(s.results)) AS results, sum(pg_column_size(s.error)) AS errors,
                count(pg_column_compression(s.results)) + count(pg_column_compression(s.error)) AS compressed
            FROM tasker.workflow_steps s
            WHERE s.task_uuid = t.task_uuid AND (z.shown IS NULL OR s.step_uuid IN (SELECT unnest(_shown)))
        ) s
        CROSS JOIN LATERAL (
            SELECT sum(pg_column_size(h.detail)) AS failures, count(pg_column_compression(h.detail)) AS compressed
            FROM tasker.workflow_step_transitions h
            WHERE h.task_uuid = t.task_uuid AND h.to_state = 'error' AND (z.shown IS NULL OR h.step_uuid IN (SELECT unnest(_shown)))
        ) f
        WHERE s.compressed + f.compressed + num_nonnulls(pg_column_compression(t.context)) > 0
           OR coalesce(s.results, 0) + coalesce(s.errors, 0) + coalesce(f.failures, 0) + pg_column_size(t.context) > tasker.max_snapshot_bytes()
    LOOP
        _cuts := coalesce(_cuts, '{}') || tasker.task_snapshot_cuts(_task.task_uuid, _task.shown);
    END LOOP;
    RETURN _cuts;
END
$$;
COMMENT ON FUNCTION tasker.snapshot_cuts(uuid[]) IS 'What is not in the snapshots of tasks with items and of large tasks: see shown_steps and task_snapshot_cuts. Null when there is none of these.';
