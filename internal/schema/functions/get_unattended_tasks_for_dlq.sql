-- get_unattended_tasks_for_dlq finds the tasks that have stood in error past the
-- recovery window without an investigation, however they came there. It reads
-- one index range. Planned once a session, as get_stale_tasks_for_dlq is.
CREATE OR REPLACE FUNCTION tasker.get_unattended_tasks_for_dlq(
    p_limit integer DEFAULT 100,
    p_now   timestamptz DEFAULT clock_timestamp()
) RETURNS TABLE (
    task_uuid             uuid,
    namespace_name        text,
    task_name             text,
    state_since           timestamptz,
    time_in_state_minutes numeric,
    threshold_minutes     numeric,
    dlq_reason            tasker.dlq_reason
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT
        t.task_uuid, t.namespace, t.name, t.state_since,
        round((extract(epoch FROM p_now - t.state_since) / 60)::numeric, 3),
        round((extract(epoch FROM t.attend_by - t.state_since) / 60)::numeric, 3),
        CASE
            WHEN n.failed > n.awaiting THEN 'max_retries_exceeded'::tasker.dlq_reason
            WHEN n.awaiting > 0 THEN 'worker_unavailable'
            ELSE 'staleness_timeout'
        END
    FROM tasker.tasks t
    CROSS JOIN LATERAL (
        SELECT count(*) AS failed, count(s.awaits_worker_since) AS awaiting
        FROM tasker.workflow_steps s
        WHERE s.task_uuid = t.task_uuid AND s.state = 'error' AND s.next_retry_at IS NULL
    ) n
    WHERE t.attend_by <= p_now
      AND NOT EXISTS ( -- at which the sweep has failed: see get_stale_tasks_for_dlq
          SELECT FROM tasker.deferred_work f WHERE f.kind = 'sweep' AND f.task_uuid = t.task_uuid AND f.retry_at > p_now OFFSET 0
      )
    ORDER BY t.attend_by
    LIMIT p_limit;
END
$$;
COMMENT ON FUNCTION tasker.get_unattended_tasks_for_dlq(integer, timestamptz) IS 'Tasks in error past the recovery window without an investigation, the longest overdue first.';
