-- get_step_readiness_status says of each step of a task whether it can run, and
-- if not, why not. The items of map steps are told of only if they are asked for. A task in error retries nothing by itself, and one whose start
-- time is in the future starts nothing.
CREATE OR REPLACE FUNCTION tasker.get_step_readiness_status(
    p_task_uuid  uuid,
    p_step_uuids uuid[] DEFAULT NULL,
    p_now        timestamptz DEFAULT clock_timestamp()
) RETURNS TABLE (
    step_uuid              uuid,
    task_uuid              uuid,
    name                   text,
    current_state          text,
    dependencies_satisfied boolean,
    retry_eligible         boolean,
    ready_for_execution    boolean,
    total_parents          integer,
    completed_parents      integer,
    attempts               integer,
    max_attempts           integer,
    last_attempted_at      timestamptz,
    last_failure_at        timestamptz,
    next_retry_at          timestamptz
)
LANGUAGE sql STABLE
AS $$
    SELECT
        s.step_uuid, s.task_uuid, s.name, s.state,
        r.satisfied,
        r.eligible,
        r.satisfied AND ((s.state = 'pending' AND t.state <> 'pending') OR r.eligible),
        cardinality(s.parent_uuids),
        CASE WHEN s.join_rule = 'any' THEN (
            SELECT count(*)::integer
            FROM tasker.workflow_steps p
            WHERE p.task_uuid = s.task_uuid AND p.step_uuid = ANY (s.parent_uuids) AND p.state IN ('complete', 'resolved_manually', 'skipped')
        ) WHEN s.items_total IS NOT NULL THEN cardinality(s.parent_uuids) ELSE cardinality(s.parent_uuids) - s.parents_open END,
        s.attempts, s.max_attempts, s.last_attempted_at, s.last_failure_at, s.next_retry_at
    FROM tasker.workflow_steps s
    JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
    CROSS JOIN LATERAL (
        SELECT s.state = 'error' AND s.next_retry_at <= p_now IS TRUE AND t.state <> 'error' AS eligible,
            CASE WHEN s.join_rule IS NULL THEN s.parents_open = 0 ELSE s.decided_at IS NOT NULL END AS satisfied
    ) r
    WHERE s.task_uuid = p_task_uuid AND (p_step_uuids IS NULL AND s.map_step_uuid IS NULL OR s.step_uuid = ANY (p_step_uuids))
    ORDER BY s.step_uuid
$$;
COMMENT ON FUNCTION tasker.get_step_readiness_status(uuid, uuid[], timestamptz) IS 'Readiness of each step of a task: dependencies, retry, whether it could be enqueued now.';
