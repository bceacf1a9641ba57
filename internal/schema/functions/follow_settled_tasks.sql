-- follow_settled_tasks has the investigations of tasks follow where these have come
-- to rest, for tasks that were in error or are now. An entry is marked recovered
-- when its task goes on by itself, and no longer when the task comes back; one about
-- workers when all that waited for them is enqueued again, which redispatch does.
-- Where something happened in a task that stays in error and that nobody looks
-- into, the sweep is to look after it. Returns how many entries were told. The
-- caller has moved the tasks in the same transaction; p_by_operator: on a person's
-- word, who says so to the entries too.
CREATE OR REPLACE FUNCTION tasker.follow_settled_tasks(
    p_tasks       uuid[],
    p_from        text[],
    p_to          text[],
    p_by_operator boolean
) RETURNS integer
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    _told  integer;
    _again integer;
BEGIN
    WITH recovered AS (
        UPDATE tasker.tasks_dlq d
        SET recovered_at = t.state_since, updated_at = t.state_since
        FROM unnest(p_tasks, p_from, p_to) AS m (task_uuid, was, state)
        JOIN tasker.tasks t ON t.task_uuid = m.task_uuid
        WHERE NOT p_by_operator AND m.was = 'error' AND m.state <> 'error' AND d.task_uuid = m.task_uuid
          AND d.resolution_status = 'pending' AND d.recovered_at IS NULL
          AND d.dlq_reason = 'staleness_timeout'
        RETURNING d.dlq_entry_uuid, t.state_since
    )
    INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, changed_at)
    SELECT r.dlq_entry_uuid, 'recovered', 'tasker', 'pending', 'pending', r.state_since
    FROM recovered r;
    GET DIAGNOSTICS _told = ROW_COUNT;

    WITH again AS (
        UPDATE tasker.tasks_dlq d
        SET recovered_at = NULL, updated_at = t.state_since
        FROM unnest(p_tasks, p_from, p_to) AS m (task_uuid, was, state)
        JOIN tasker.tasks t ON t.task_uuid = m.task_uuid
        WHERE m.state = 'error' AND m.was <> 'error' AND d.task_uuid = m.task_uuid
          AND d.resolution_status = 'pending' AND d.recovered_at IS NOT NULL
        RETURNING d.dlq_entry_uuid, t.state_since
    )
    INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, changed_at)
    SELECT a.dlq_entry_uuid, 'stuck_again', 'tasker', 'pending', 'pending', 'the task had gone on and came to error again', a.state_since
    FROM again a;
    GET DIAGNOSTICS _again = ROW_COUNT;

    UPDATE tasker.tasks t
    SET attend_by = clock_timestamp() + make_interval(mins => st.error_recovery_minutes)
    FROM unnest(p_tasks, p_from, p_to) AS m (task_uuid, was, state)
    CROSS JOIN tasker.staleness_thresholds st
    WHERE st.only_row AND t.task_uuid = m.task_uuid AND m.was = 'error' AND m.state = 'error' AND t.attend_by IS NULL
      AND NOT EXISTS (
          SELECT FROM tasker.tasks_dlq d
          WHERE d.task_uuid = m.task_uuid
            AND (d.resolution_status = 'pending' OR d.resolution_status = 'permanently_failed' AND t.phase IS NULL) -- it is undone, and that goes on
      );
    RETURN _told + _again;
END
$$;
COMMENT ON FUNCTION tasker.follow_settled_tasks(uuid[], text[], text[], boolean) IS 'Has the investigations of tasks that were in error, or are now, follow where these have come to rest.';
