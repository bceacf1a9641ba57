-- transition_stale_task_to_error moves one stale task to error if it still stands
-- where the caller saw it, and says whether it did.
CREATE OR REPLACE FUNCTION tasker.transition_stale_task_to_error(
    p_task_uuid     uuid,
    p_current_state text,
    p_state_since   timestamptz,
    p_reason        text
) RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM tasker.transition_stale_tasks_to_error(ARRAY[p_task_uuid], ARRAY[p_current_state], ARRAY[p_state_since], ARRAY[p_reason])
    );
END
$$;
COMMENT ON FUNCTION tasker.transition_stale_task_to_error(uuid, text, timestamptz, text) IS 'Moves a stale task to error unless it has moved on meanwhile.';
