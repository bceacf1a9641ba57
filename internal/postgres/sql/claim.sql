-- name: recordHeartbeat
UPDATE tasker.workers
SET last_heartbeat_at = clock_timestamp()
WHERE worker_uuid = $1 AND left_at IS NULL
RETURNING draining_since IS NOT NULL AS drains, lease;

-- name: extendLeases
-- Never waits for a row lock, which usually belongs to a report. The lease of a locked step keeps
-- its
-- end.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
named AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid, s.fence, s.lease_expires_at
    FROM tasker.workflow_steps s
    JOIN unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS l (task_uuid, step_uuid, fence)
        ON s.task_uuid = l.task_uuid AND s.step_uuid = l.step_uuid AND s.fence = l.fence
    WHERE s.state = 'in_progress' AND s.worker_uuid = $4
),
free AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid
    FROM tasker.workflow_steps s
    JOIN named n USING (task_uuid, step_uuid)
    WHERE s.state = 'in_progress' AND s.worker_uuid = $4 AND s.fence = n.fence
    FOR NO KEY UPDATE OF s SKIP LOCKED
),
extended AS (
    UPDATE tasker.workflow_steps s
    SET lease_expires_at = least(c.at + $5::interval, s.timeout_at)
    FROM free f
    CROSS JOIN clock c
    WHERE s.task_uuid = f.task_uuid AND s.step_uuid = f.step_uuid
    RETURNING s.step_uuid, s.lease_expires_at
)
SELECT n.step_uuid, coalesce(e.lease_expires_at, n.lease_expires_at) AS expires_at
FROM named n
LEFT JOIN extended e USING (step_uuid);

-- name: releaseSteps
-- Does not change the number of attempts, which are counted when a step is enqueued.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
held AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid, s.worker_uuid
    FROM tasker.workflow_steps s
    JOIN unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS l (task_uuid, step_uuid, fence)
        ON s.task_uuid = l.task_uuid AND s.step_uuid = l.step_uuid AND s.fence = l.fence
    WHERE s.state = 'in_progress' AND s.worker_uuid = $4
    ORDER BY s.task_uuid, s.step_uuid
    FOR NO KEY UPDATE OF s
),
released AS (
    UPDATE tasker.workflow_steps s
    SET state = 'enqueued', state_since = c.at, updated_at = c.at, fence = s.fence + 1,
        worker_uuid = NULL, lease_expires_at = NULL, timeout_at = NULL,
        expires_at = c.at + interval '1 millisecond' * coalesce(s.queue_ttl_ms, $5)
    FROM held h
    CROSS JOIN clock c
    WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid
    RETURNING s.namespace, s.handler, s.priority, s.state_since, s.step_uuid, s.task_uuid, s.expires_at, s.queue_ttl_ms, s.inputs_bytes, s.attempts
),
ready AS (
    INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, due_at)
    SELECT namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, (
        SELECT min(o.due_at) FROM tasker.deadlines o
        WHERE o.task_uuid = e.task_uuid AND o.step_uuid IN ('00000000-0000-0000-0000-000000000000', e.step_uuid) AND o.orders
    ) FROM (SELECT * FROM released) e
),
announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM released WHERE $6 ORDER BY task_uuid, step_uuid
),
log AS (
    INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, created_at)
    SELECT task_uuid, step_uuid, 'in_progress', 'enqueued', 'release', attempts, $4, state_since
    FROM released
)
SELECT step_uuid FROM released;
