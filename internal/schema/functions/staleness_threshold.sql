-- staleness_threshold returns how long a task may be in a state: the template's
-- own limit, else the server's. Null for a state that is not watched.
CREATE OR REPLACE FUNCTION tasker.staleness_threshold(
    p_state    text,
    p_template tasker.task_templates,
    p_server   tasker.staleness_thresholds
) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT make_interval(mins => CASE p_state
        WHEN 'waiting_for_dependencies' THEN coalesce(p_template.max_waiting_for_dependencies_minutes, p_server.waiting_for_dependencies_minutes)
        WHEN 'waiting_for_retry'        THEN coalesce(p_template.max_waiting_for_retry_minutes, p_server.waiting_for_retry_minutes)
        WHEN 'steps_in_process'         THEN coalesce(p_template.max_steps_in_process_minutes, p_server.steps_in_process_minutes)
    END)
$$;
COMMENT ON FUNCTION tasker.staleness_threshold(text, tasker.task_templates, tasker.staleness_thresholds) IS 'How long a task may stand in a state before it is stale; null for states that nobody watches.';
