-- task_resting_state returns the state in which a task rests, from how many of its
-- steps are in which state. The order of the cases is the rule: as long as anything
-- runs, nothing is given up.
CREATE OR REPLACE FUNCTION tasker.task_resting_state(
    p_total    bigint,
    p_done     bigint,
    p_active   bigint,
    p_retrying bigint,
    p_failed   bigint
) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN p_done = p_total THEN 'complete'
        WHEN p_active > 0     THEN 'steps_in_process'
        WHEN p_retrying > 0   THEN 'waiting_for_retry'
        WHEN p_failed > 0     THEN 'error'
        ELSE 'waiting_for_dependencies'
    END
$$;
COMMENT ON FUNCTION tasker.task_resting_state(bigint, bigint, bigint, bigint, bigint) IS 'State in which a task comes to rest, from the counts of its steps.';
