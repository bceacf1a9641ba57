-- name: cancelTasks
WITH moved AS (
    UPDATE tasker.tasks t
    SET state = 'cancelled', state_since = clock_timestamp(), updated_at = clock_timestamp(), warn_at = NULL, stale_at = NULL,
        phase = NULL, outcome = coalesce(CASE WHEN t.phase IS NOT NULL THEN 'compensation_stopped' END, nullif($5, ''))
    FROM unnest($1::uuid[], $2::text[]) AS u (task_uuid, state)
    WHERE t.task_uuid = u.task_uuid AND t.state = u.state
    RETURNING t.task_uuid, t.state_since, u.state AS was
)
INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, actor, reason, created_at)
SELECT m.task_uuid, m.was, 'cancelled', $6, nullif($3, ''), nullif($4, ''), m.state_since
FROM moved m
ORDER BY m.task_uuid;

-- name: selectTaskTargets
SELECT t.task_uuid, t.state, EXISTS (
    SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid AND d.resolution_status = 'pending' AND d.recovered_at IS NOT NULL
) AS recovered, EXISTS (
    SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid AND d.resolution_status = 'pending' AND d.dlq_reason = 'manual_dlq'
) AS by_hand, t.phase IS NOT NULL AS undone
FROM unnest($1::uuid[]) AS u (task_uuid)
JOIN tasker.tasks t ON t.task_uuid = u.task_uuid;

-- name: taskState
SELECT state FROM tasker.tasks WHERE task_uuid = $1 FOR NO KEY UPDATE;

-- name: forgetReleases
DELETE FROM tasker.deferred_work w WHERE w.kind = 'release_hold' AND w.task_uuid = ANY ($1);
