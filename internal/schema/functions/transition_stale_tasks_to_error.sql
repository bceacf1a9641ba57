-- transition_stale_tasks_to_error moves stale tasks to error, those that still
-- stand where the caller saw them, and returns them. p_attended: the caller opens
-- their investigations in the same transaction.
CREATE OR REPLACE FUNCTION tasker.transition_stale_tasks_to_error(
    p_tasks    uuid[],
    p_states   text[],
    p_since    timestamptz[],
    p_reasons  text[],
    p_attended boolean DEFAULT false
) RETURNS SETOF uuid
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN QUERY
    WITH moved AS (
        UPDATE tasker.tasks t
        SET state = 'error', state_since = clock_timestamp(), warn_at = NULL, stale_at = NULL, updated_at = clock_timestamp(),
            attend_by = CASE WHEN p_attended THEN timestamptz 'infinity' END -- see watch_task_in_error
        FROM unnest(p_tasks, p_states, p_since, p_reasons) AS c (task_uuid, state, since, reason)
        WHERE t.task_uuid = c.task_uuid AND t.state = c.state AND t.state_since = c.since
        RETURNING t.task_uuid, c.state AS was, t.state_since, c.reason
    ),
    log AS (
        INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, reason, created_at)
        SELECT m.task_uuid, m.was, 'error', 'declare_stale', m.reason, m.state_since
        FROM moved m
        ORDER BY m.task_uuid
    )
    SELECT m.task_uuid FROM moved m;
END
$$;
COMMENT ON FUNCTION tasker.transition_stale_tasks_to_error(uuid[], text[], timestamptz[], text[], boolean) IS 'Moves stale tasks to error unless they have moved on meanwhile; returns those it moved.';
