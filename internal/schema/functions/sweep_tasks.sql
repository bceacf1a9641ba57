-- sweep_tasks moves tasks that the sweep has found and holds: to error, unless they
-- are there, and into an investigation. All of them or none: when it fails for one
-- the caller gives it each on its own.
CREATE OR REPLACE FUNCTION tasker.sweep_tasks(
    p_tasks      uuid[],
    p_states     text[],
    p_since      timestamptz[],
    p_minutes    numeric[],
    p_thresholds numeric[],
    p_details    text[],
    p_reasons    tasker.dlq_reason[],
    p_sweep      uuid
) RETURNS TABLE (task_uuid uuid, transitioned boolean, dlq_entry_uuid uuid)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    _moved    uuid[];
    _metadata jsonb[];
BEGIN
    SELECT array(
        SELECT m.task_uuid
        FROM (
            SELECT array_agg(c.task_uuid) AS tasks, array_agg(c.state) AS states, array_agg(c.since) AS since,
                array_agg(format('%s minutes in %s (%s)', round(c.minutes, 1), c.state, c.detail)) AS reasons
            FROM unnest(p_tasks, p_states, p_since, p_minutes, p_details) AS c (task_uuid, state, since, minutes, detail)
            WHERE c.state <> 'error'
        ) s
        CROSS JOIN LATERAL tasker.transition_stale_tasks_to_error(s.tasks, s.states, s.since, s.reasons, true) AS m (task_uuid)
    ) INTO _moved;

    SELECT array_agg(jsonb_build_object(
        'detection_method', 'automatic_staleness',
        'sweep_id', p_sweep,
        'last_step', (
            SELECT w.name
            FROM tasker.workflow_steps w
            WHERE w.task_uuid = c.task_uuid AND w.last_attempted_at IS NOT NULL
            ORDER BY w.last_attempted_at DESC
            LIMIT 1
        ),
        'time_in_state_minutes', c.minutes,
        'threshold_minutes', c.threshold) ORDER BY c.ordinal)
    INTO _metadata
    FROM unnest(p_tasks, p_minutes, p_thresholds) WITH ORDINALITY AS c (task_uuid, minutes, threshold, ordinal);

    RETURN QUERY
    SELECT c.task_uuid, c.task_uuid = ANY (_moved), e.dlq_entry_uuid
    FROM unnest(p_tasks) WITH ORDINALITY AS c (task_uuid, ordinal)
    LEFT JOIN tasker.create_dlq_entries(p_tasks, p_reasons, p_details, 'sweep', p_states, p_since,
        array_fill(NULL::uuid, ARRAY[cardinality(p_tasks)]), 'tasker', NULL, _metadata) e ON e.task_uuid = c.task_uuid
    ORDER BY c.ordinal;
END
$$;
COMMENT ON FUNCTION tasker.sweep_tasks(uuid[], text[], timestamptz[], numeric[], numeric[], text[], tasker.dlq_reason[], uuid) IS 'Moves tasks that the sweep holds to error and opens their investigations; all or none.';
