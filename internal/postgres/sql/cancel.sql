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

-- name: cancelSteps
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
open AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid, s.state, s.namespace, s.handler, s.priority, s.state_since
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = ANY ($1) AND s.state NOT IN ('complete', 'resolved_manually', 'cancelled', 'skipped')
    ORDER BY s.task_uuid, s.step_uuid
    FOR NO KEY UPDATE
),
unqueued AS (
    DELETE FROM tasker.ready_steps r
    USING (SELECT * FROM open o WHERE o.state = 'enqueued') s
    WHERE r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid
),
unheld AS (
    DELETE FROM tasker.held_steps q
    USING (SELECT * FROM open o WHERE o.state = 'enqueued') s
    WHERE q.task_uuid = s.task_uuid AND q.step_uuid = s.step_uuid
    RETURNING q.task_uuid
),
forgotten AS (
    DELETE FROM tasker.deferred_work f USING unheld p WHERE f.kind = 'release_hold' AND f.task_uuid = p.task_uuid
),
moved AS (
    UPDATE tasker.workflow_steps s
    SET state = 'cancelled', state_since = c.at, updated_at = c.at, fence = s.fence + 1, lease_expires_at = NULL,
        timeout_at = NULL, next_retry_at = NULL, kept_report = NULL, expires_at = NULL, awaits_worker_since = NULL, decide_at = NULL, wait_until = NULL, remind_at = NULL,
        unwritten = -greatest(s.unwritten, 0)
    FROM open o
    CROSS JOIN clock c
    WHERE s.task_uuid = o.task_uuid AND s.step_uuid = o.step_uuid
    RETURNING s.task_uuid, s.step_uuid, o.state AS was, CASE WHEN o.state = 'enqueued' THEN o.state_since END AS queued_since, s.attempts, s.worker_uuid, s.state_since,
        s.unwritten, s.moves_id, s.enqueued_at, s.last_attempted_at
)
INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, actor, reason, created_at, operation_uuid,
    moves_id, enqueued_at, claimed_at)
SELECT m.task_uuid, m.step_uuid, m.was, 'cancelled', 'cancel', m.attempts,
    CASE WHEN m.was = 'in_progress' THEN m.worker_uuid END, nullif($2, ''), nullif($3, ''), m.state_since, $4::uuid,
        CASE WHEN m.unwritten < 0 THEN m.moves_id END,
        CASE WHEN m.unwritten IN (-1, -3) THEN coalesce(m.queued_since, m.enqueued_at) END,
        CASE WHEN m.unwritten IN (-2, -3) THEN m.last_attempted_at END
FROM moved m
ORDER BY m.task_uuid, m.step_uuid;

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
