-- get_due_tasks_for_dlq is all that the sweep has to do: tasks that are stale, and
-- tasks in error that nobody looks into. Up to p_limit of each.
CREATE OR REPLACE FUNCTION tasker.get_due_tasks_for_dlq(p_limit integer DEFAULT 100) RETURNS TABLE (
    task_uuid             uuid,
    namespace_name        text,
    task_name             text,
    current_state         text,
    state_since           timestamptz,
    time_in_state_minutes numeric,
    threshold_minutes     numeric,
    detail_code           text,
    dlq_reason            tasker.dlq_reason
)
LANGUAGE sql STABLE
AS $$
    SELECT s.task_uuid, s.namespace_name, s.task_name, s.current_state, s.state_since, s.time_in_state_minutes,
        s.threshold_minutes, s.detail_code, 'staleness_timeout'::tasker.dlq_reason
    FROM tasker.get_stale_tasks_for_dlq(p_limit) s
    UNION ALL
    SELECT u.task_uuid, u.namespace_name, u.task_name, 'error', u.state_since, u.time_in_state_minutes,
        u.threshold_minutes, CASE u.dlq_reason WHEN 'worker_unavailable' THEN 'no_workers' ELSE 'unrecovered_error' END, u.dlq_reason
    FROM tasker.get_unattended_tasks_for_dlq(p_limit) u
$$;
COMMENT ON FUNCTION tasker.get_due_tasks_for_dlq(integer) IS 'What the sweep has to do: stale tasks, and tasks in error that nobody looks into.';
