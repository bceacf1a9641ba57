-- transition_stale_task_to_error moves a stale task to error if it still stands
-- where the caller saw it, and says whether it did.
CREATE OR REPLACE FUNCTION tasker.transition_stale_task_to_error(
    p_task_uuid     uuid,
    p_current_state text,
    p_state_since   timestamptz,
    p_reason        text
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    _done boolean;
BEGIN
    WITH moved AS (
        UPDATE tasker.tasks t
        SET state = 'error', state_since = clock_timestamp(), warn_at = NULL, stale_at = NULL, updated_at = clock_timestamp()
        WHERE t.task_uuid = p_task_uuid AND t.state = p_current_state AND t.state_since = p_state_since
        RETURNING t.task_uuid, t.state_since
    ),
    logged AS (
        INSERT INTO tasker.task_transitions (task_uuid, from_state, to_state, event, reason, created_at)
        SELECT task_uuid, p_current_state, 'error', 'declare_stale', p_reason, state_since
        FROM moved
        RETURNING 1
    )
    SELECT EXISTS (SELECT FROM logged) INTO _done;
    RETURN _done;
END
$$;
COMMENT ON FUNCTION tasker.transition_stale_task_to_error(uuid, text, timestamptz, text) IS 'Moves a stale task to error unless it has moved on meanwhile.';
