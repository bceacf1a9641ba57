-- get_stale_tasks_for_dlq finds the tasks that have stood in a watched state past
-- their threshold, or have run past max_duration_minutes, or are overdue and are to be
-- investigated then, and have no open investigation. Who recovered and stands still again is found again; who
-- went on although its duration is over, or may, is known already, and so is who was found
-- overdue since it is due then, whatever weightier reason the investigation was given since. It reads one index range for each threshold in use, one for durations
-- and one for due times: its cost grows with what is due. A step that is being worked on within its own timeout is no standstill
-- (steps_within_timeout), unless max_duration is over. A task at
-- which the sweep has failed is left out until it is to be tried again
-- (deferred_work). Planned once a session, for any limit: to plan it takes as long as to
-- run it.
CREATE OR REPLACE FUNCTION tasker.get_stale_tasks_for_dlq(
    p_limit integer DEFAULT 100,
    p_now   timestamptz DEFAULT clock_timestamp()
) RETURNS TABLE (
    task_uuid             uuid,
    namespace_name        text,
    task_name             text,
    current_state         text,
    state_since           timestamptz,
    time_in_state_minutes numeric,
    threshold_minutes     numeric,
    task_age_minutes      numeric,
    detail_code           text
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT
        due.task_uuid, due.namespace, due.name, due.state, due.state_since,
        round((extract(epoch FROM p_now - due.state_since) / 60)::numeric, 3),
        round((extract(epoch FROM due.stale_at - due.state_since) / 60)::numeric, 3),
        round((extract(epoch FROM p_now - due.created_at) / 60)::numeric, 3),
        due.detail_code
    FROM (
        SELECT DISTINCT ON (u.task_uuid) u.*
        FROM (
            (
                SELECT s.*, s.state AS detail_code, s.stale_at AS due_at
                FROM tasker.thresholds_in_use() AS h (seconds)
                CROSS JOIN LATERAL (
                    SELECT t.task_uuid, t.namespace, t.name, t.state, t.state_since, t.stale_at, t.created_at
                    FROM tasker.tasks t
                    LEFT JOIN tasker.tasks_dlq d ON d.task_uuid = t.task_uuid AND d.resolution_status = 'pending' AND d.recovered_at IS NULL
                    WHERE t.stale_at IS NOT NULL
                      AND extract(epoch FROM t.stale_at - t.state_since)::double precision = h.seconds
                      AND t.state_since <= p_now - make_interval(secs => h.seconds)
                      AND d.task_uuid IS NULL
                      -- OFFSET 0 keeps the planner from joining: these are asked of the few that are due.
                      AND NOT EXISTS (SELECT FROM tasker.steps_within_timeout(t.task_uuid, t.template_uuid, p_now) OFFSET 0)
                      AND NOT EXISTS (
                          SELECT FROM tasker.deferred_work f WHERE f.kind = 'sweep' AND f.task_uuid = t.task_uuid AND f.retry_at > p_now OFFSET 0
                      )
                    ORDER BY t.state_since
                    LIMIT p_limit
                ) s
                ORDER BY s.stale_at
                LIMIT p_limit
            )
            UNION ALL
            (
                SELECT e.task_uuid, e.namespace, e.name, e.state, e.state_since, e.stale_at, e.created_at, 'max_duration', e.ends_at
                FROM tasker.tasks e
                LEFT JOIN tasker.tasks_dlq d ON d.task_uuid = e.task_uuid AND (d.resolution_status = 'pending' OR 'max_duration' IN (d.detail_code, d.original_detail_code))
                WHERE e.ends_at <= p_now AND e.stale_at IS NOT NULL AND d.task_uuid IS NULL
                  AND NOT EXISTS (SELECT FROM tasker.held_steps q WHERE q.task_uuid = e.task_uuid AND q.hold_uuid IS NOT NULL OFFSET 0)
                  AND NOT EXISTS (
                      SELECT FROM tasker.deferred_work f WHERE f.kind = 'sweep' AND f.task_uuid = e.task_uuid AND f.retry_at > p_now OFFSET 0
                  )
                ORDER BY e.ends_at
                LIMIT p_limit
            )
            UNION ALL
            (
                SELECT e.task_uuid, e.namespace, e.name, e.state, e.state_since, e.stale_at, e.created_at, 'overdue', o.due_at
                FROM tasker.deadlines o
                JOIN tasker.tasks e ON e.task_uuid = o.task_uuid
                LEFT JOIN tasker.tasks_dlq d ON d.task_uuid = e.task_uuid AND (d.resolution_status = 'pending' OR 'overdue' IN (d.detail_code, d.original_detail_code) AND d.dlq_timestamp >= o.due_at)
                WHERE o.due_at <= p_now AND o.ended_at IS NULL AND o.investigate AND e.stale_at IS NOT NULL AND d.task_uuid IS NULL
                  AND NOT EXISTS (
                      SELECT FROM tasker.workflow_steps w
                      WHERE w.task_uuid = o.task_uuid AND w.step_uuid = o.step_uuid AND w.state IN ('complete', 'resolved_manually', 'skipped', 'cancelled') OFFSET 0
                  )
                  AND NOT EXISTS (SELECT FROM tasker.held_steps q WHERE q.task_uuid = e.task_uuid AND q.hold_uuid IS NOT NULL OFFSET 0)
                  AND NOT EXISTS (
                      SELECT FROM tasker.deferred_work f WHERE f.kind = 'sweep' AND f.task_uuid = e.task_uuid AND f.retry_at > p_now OFFSET 0
                  )
                ORDER BY o.due_at
                LIMIT p_limit
            )
        ) u
        ORDER BY u.task_uuid, u.due_at
    ) due
    ORDER BY due.due_at
    LIMIT p_limit;
END
$$;
COMMENT ON FUNCTION tasker.get_stale_tasks_for_dlq(integer, timestamptz) IS 'Tasks past their staleness threshold, their whole duration or their due time, without an open investigation, the longest overdue first.';
