-- name: setStalenessThresholds
UPDATE tasker.staleness_thresholds
SET waiting_for_dependencies_minutes = $1, waiting_for_retry_minutes = $2, steps_in_process_minutes = $3,
    error_recovery_minutes = $4, updated_at = clock_timestamp()
WHERE (waiting_for_dependencies_minutes, waiting_for_retry_minutes, steps_in_process_minutes, error_recovery_minutes)
    IS DISTINCT FROM ($1, $2, $3, $4);

-- name: thresholdsToApply
SELECT updated_at FROM tasker.staleness_thresholds
WHERE only_row AND applied_at IS DISTINCT FROM updated_at AND updated_at <= clock_timestamp() - $1::interval;

-- name: applyStaleness
-- Reads tasks in index order. A task that is changed moves in the index and is read at most twice.
WITH page AS MATERIALIZED (
    SELECT t.task_uuid, t.template_uuid, t.state, t.state_since, t.stale_at,
        extract(epoch FROM t.stale_at - t.state_since)::double precision AS seconds
    FROM tasker.tasks t
    WHERE t.stale_at IS NOT NULL
      AND (extract(epoch FROM t.stale_at - t.state_since)::double precision, t.state_since, t.task_uuid)
        > (coalesce($1::double precision, '-infinity'), coalesce($2::timestamptz, '-infinity'), coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'))
    ORDER BY extract(epoch FROM t.stale_at - t.state_since)::double precision, t.state_since, t.task_uuid
    LIMIT $4
),
due AS MATERIALIZED (
    SELECT p.task_uuid, p.state_since, h.threshold
    FROM page p
    JOIN tasker.task_templates tt ON tt.template_uuid = p.template_uuid
    JOIN tasker.staleness_thresholds st ON st.only_row
    CROSS JOIN LATERAL (
        SELECT tasker.staleness_threshold(p.state, tt, st) + tasker.retry_rest(p.state, tt, CASE p.state WHEN 'waiting_for_retry' THEN (
            SELECT min(s.next_retry_at) FROM tasker.workflow_steps s WHERE s.task_uuid = p.task_uuid AND s.next_retry_at IS NOT NULL
        ) WHEN 'waiting_for_dependencies' THEN (
            SELECT min(s.wait_until) FROM tasker.workflow_steps s WHERE s.task_uuid = p.task_uuid AND s.wait_until IS NOT NULL
        ) END - p.state_since) AS threshold
    ) h
    WHERE p.stale_at <> p.state_since + h.threshold
),
held AS MATERIALIZED (
    SELECT t.task_uuid
    FROM tasker.tasks t
    WHERE t.task_uuid = ANY (ARRAY(SELECT d.task_uuid FROM due d)) AND t.stale_at IS NOT NULL
    ORDER BY t.task_uuid
    FOR NO KEY UPDATE SKIP LOCKED
),
changed AS (
    UPDATE tasker.tasks t
    SET warn_at = t.state_since + 0.8 * d.threshold, stale_at = t.state_since + d.threshold
    FROM held e
    JOIN due d ON d.task_uuid = e.task_uuid
    WHERE t.task_uuid = e.task_uuid AND t.state_since = d.state_since
    RETURNING 1
)
SELECT (SELECT count(*) FROM page), (SELECT count(*) FROM due), (SELECT count(*) FROM changed),
    l.seconds, l.state_since, l.task_uuid
FROM (SELECT 1) one
LEFT JOIN LATERAL (SELECT * FROM page p ORDER BY p.seconds DESC, p.state_since DESC, p.task_uuid DESC LIMIT 1) l ON true;

-- name: applyRecovery
-- A recovery window starts with the error or with the end of the last investigation. It is in whole
-- minutes.
WITH page AS MATERIALIZED (
    SELECT t.task_uuid, t.attend_by, t.state_since
    FROM tasker.tasks t
    WHERE t.attend_by IS NOT NULL
      AND (t.attend_by, t.task_uuid) > (coalesce($1::timestamptz, '-infinity'), coalesce($2::uuid, '00000000-0000-0000-0000-000000000000'))
    ORDER BY t.attend_by, t.task_uuid
    LIMIT $3
),
due AS MATERIALIZED (
    SELECT p.task_uuid, p.attend_by, make_interval(mins => m.minutes) AS move
    FROM page p
    JOIN tasker.staleness_thresholds st ON st.only_row
    CROSS JOIN LATERAL (
        SELECT round(extract(epoch FROM
            greatest(p.state_since, (SELECT max(d.resolved_at) FROM tasker.tasks_dlq d WHERE d.task_uuid = p.task_uuid))
            + make_interval(mins => st.error_recovery_minutes) - p.attend_by) / 60)::integer AS minutes
    ) m
    WHERE m.minutes <> 0
),
held AS MATERIALIZED (
    SELECT t.task_uuid
    FROM tasker.tasks t
    WHERE t.task_uuid = ANY (ARRAY(SELECT d.task_uuid FROM due d)) AND t.attend_by IS NOT NULL
    ORDER BY t.task_uuid
    FOR NO KEY UPDATE SKIP LOCKED
),
changed AS (
    UPDATE tasker.tasks t
    SET attend_by = t.attend_by + d.move
    FROM held e
    JOIN due d ON d.task_uuid = e.task_uuid
    WHERE t.task_uuid = e.task_uuid AND t.attend_by = d.attend_by
    RETURNING 1
)
SELECT (SELECT count(*) FROM page), (SELECT count(*) FROM due), (SELECT count(*) FROM changed), l.attend_by, l.task_uuid
FROM (SELECT 1) one
LEFT JOIN LATERAL (SELECT * FROM page p ORDER BY p.attend_by DESC, p.task_uuid DESC LIMIT 1) l ON true;

-- name: thresholdsApplied
UPDATE tasker.staleness_thresholds SET applied_at = updated_at WHERE only_row AND updated_at = $1;
