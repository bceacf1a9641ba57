-- snapshot_steps returns the steps of a task that its snapshot shows one by one: p_shown,
-- or all if that is null (see shown_steps). PostgreSQL puts its body in the place of a
-- call, so that only the columns are read that are asked for, by a range of the primary
-- key or by the key of each step. It takes a little longer to begin than a range alone.
CREATE OR REPLACE FUNCTION tasker.snapshot_steps(p_task uuid, p_shown uuid[]) RETURNS SETOF tasker.workflow_steps
LANGUAGE sql STABLE
AS $$
    SELECT * FROM tasker.workflow_steps s WHERE s.task_uuid = p_task AND p_shown IS NULL
    UNION ALL
    SELECT * FROM tasker.workflow_steps s WHERE s.task_uuid = p_task AND s.step_uuid = ANY (p_shown)
$$;
COMMENT ON FUNCTION tasker.snapshot_steps(uuid, uuid[]) IS 'The steps of a task that its snapshot shows one by one: the given ones, or all if none are given.';
