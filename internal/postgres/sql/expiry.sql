-- name: expiredSteps
-- The grace period $2 applies to the default timeout, which the broker enforces. Outdated rows are
-- deleted, because otherwise they would always come first.
WITH due AS MATERIALIZED (
    SELECT s.ctid AS ready_row, s.task_uuid, s.step_uuid, s.state_since, s.expires_at
    FROM tasker.ready_steps s
    WHERE s.expires_at <= now() AND (s.expires_at <= now() - $2::interval OR s.queue_ttl_ms < $3)
      AND NOT EXISTS (
          SELECT FROM tasker.deferred_work w WHERE w.kind = 'queue_limit' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid
      )
    ORDER BY s.expires_at
    LIMIT $1
),
outdated AS MATERIALIZED (SELECT d.* FROM due d WHERE NOT EXISTS (
        SELECT FROM tasker.workflow_steps x
        WHERE x.task_uuid = d.task_uuid AND x.step_uuid = d.step_uuid AND x.state || '' = 'enqueued' AND x.state_since = d.state_since
        OFFSET 0 -- one key lookup per row
    )),
free AS MATERIALIZED (
    SELECT r.ctid AS ready_row FROM outdated o JOIN tasker.ready_steps r ON r.ctid = o.ready_row FOR UPDATE OF r SKIP LOCKED
),
queued AS (
    DELETE FROM tasker.ready_steps r USING free f WHERE r.ctid = f.ready_row RETURNING r.step_uuid
)
SELECT d.task_uuid, d.step_uuid
FROM due d
WHERE d.ready_row <> ALL (ARRAY(SELECT o.ready_row FROM outdated o))
ORDER BY d.expires_at;

-- name: unservedSteps
WITH RECURSIVE clock AS MATERIALIZED (SELECT now() - $2::interval AS since),
asked AS (SELECT ''::text AS namespace),
enqueued AS (
    (
        SELECT s.namespace, s.handler
        FROM tasker.ready_steps s WHERE true AND (s.namespace, s.handler) >= ((SELECT a.namespace FROM asked a), '')
        ORDER BY s.namespace, s.handler
        LIMIT 1
    )
    UNION ALL
    SELECT n.namespace, n.handler
    FROM enqueued q
    CROSS JOIN LATERAL (
        SELECT s.namespace, s.handler
        FROM tasker.ready_steps s WHERE true AND (s.namespace, s.handler) > (q.namespace, q.handler)
        ORDER BY s.namespace, s.handler
        LIMIT 1
    ) n
    WHERE (SELECT a.namespace FROM asked a) IN ('', q.namespace)
),
groups AS MATERIALIZED (
    SELECT DISTINCT w.namespaces, w.handlers
    FROM clock c
    CROSS JOIN tasker.workers w
    WHERE coalesce(least(w.left_at, w.draining_since), 'infinity') > c.since AND w.last_heartbeat_at >= c.since - interval '2 hours'
      AND w.last_heartbeat_at + 3 * w.heartbeat_interval > c.since
),
unserved AS MATERIALIZED (
    SELECT p.namespace, p.handler
    FROM enqueued p
    WHERE NOT EXISTS (SELECT FROM groups g WHERE p.namespace = ANY (g.namespaces) AND p.handler = ANY (g.handlers))
),
levels AS (
    SELECT q.namespace, q.handler, h.priority
    FROM unserved q
    CROSS JOIN LATERAL (
        SELECT s.priority
        FROM tasker.ready_steps s
        WHERE s.namespace = q.namespace AND s.handler = q.handler
        ORDER BY s.priority DESC
        LIMIT 1
    ) h
    UNION ALL
    SELECT q.namespace, q.handler, h.priority
    FROM levels q
    CROSS JOIN LATERAL (
        SELECT s.priority
        FROM tasker.ready_steps s
        WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.priority < q.priority
        ORDER BY s.priority DESC
        LIMIT 1
    ) h
)
SELECT x.task_uuid, x.step_uuid
FROM levels h
CROSS JOIN LATERAL (
    SELECT s.task_uuid, s.step_uuid, s.state_since
    FROM tasker.ready_steps s
    WHERE s.namespace = h.namespace AND s.handler = h.handler AND s.priority = h.priority
      AND s.state_since <= now() - $2::interval AND NOT NOT EXISTS (
        SELECT FROM tasker.workflow_steps x
        WHERE x.task_uuid = s.task_uuid AND x.step_uuid = s.step_uuid AND x.state || '' = 'enqueued' AND x.state_since = s.state_since
        OFFSET 0 -- one key lookup per row
    )
      AND NOT EXISTS (
          SELECT FROM tasker.deferred_work w WHERE w.kind = 'no_worker' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid
      )
    ORDER BY s.state_since
    LIMIT $1
) x
ORDER BY x.state_since
LIMIT $1;

-- name: queuedSteps
-- Selects how those of the steps wait that are enqueued and not held. The caller has locked their
-- rows of ready_steps. A step is deserted if no worker was live for $3.
SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.state_since AS queued_at, s.expires_at, r.expires_at AS deadline,
    r.limit_passed_at IS NOT NULL AS kept, n.workers, q.busy_at,
    coalesce(s.state_since <= clock_timestamp() - $3::interval, false) AND NOT EXISTS (
        SELECT FROM tasker.workers w
        WHERE s.namespace = ANY (w.namespaces) AND s.handler = ANY (w.handlers)
          AND coalesce(least(w.left_at, w.draining_since), 'infinity') > clock_timestamp() - $3::interval
          AND w.last_heartbeat_at >= now() - $3::interval - interval '2 hours'
          AND w.last_heartbeat_at + 3 * w.heartbeat_interval > clock_timestamp() - $3::interval
    ) AS deserted
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
LEFT JOIN tasker.ready_steps r ON r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid AND r.task_uuid = s.task_uuid
LEFT JOIN tasker.queues q ON q.namespace = s.namespace AND q.handler = s.handler
CROSS JOIN LATERAL (
    SELECT count(*) AS workers
    FROM tasker.workers w
    WHERE s.namespace = ANY (w.namespaces) AND s.handler = ANY (w.handlers) AND w.left_at IS NULL AND w.draining_since IS NULL AND w.last_heartbeat_at >= now() - interval '2 hours'
      AND w.last_heartbeat_at + 3 * w.heartbeat_interval >= clock_timestamp()
) n
WHERE s.state || '' = 'enqueued'
  AND NOT EXISTS (SELECT FROM tasker.held_steps h WHERE h.task_uuid = s.task_uuid AND h.step_uuid = s.step_uuid)
ORDER BY s.task_uuid, s.step_uuid;

-- name: tasksWithServedSteps
-- Reads one index range per queue of live workers, so that steps without workers cost nothing.
SELECT DISTINCT q.task_uuid
FROM (
    SELECT DISTINCT n.namespace, h.handler
    FROM (
        SELECT DISTINCT w.namespaces, w.handlers
        FROM tasker.workers w
        WHERE w.left_at IS NULL AND w.draining_since IS NULL AND w.last_heartbeat_at >= now() - interval '2 hours'
      AND w.last_heartbeat_at + 3 * w.heartbeat_interval >= clock_timestamp()
          AND EXISTS (SELECT FROM tasker.workflow_steps s WHERE s.awaits_worker_since IS NOT NULL)
    ) kinds
    CROSS JOIN unnest(kinds.namespaces) AS n (namespace)
    CROSS JOIN unnest(kinds.handlers) AS h (handler)
) p
CROSS JOIN LATERAL (
    SELECT s.task_uuid
    FROM tasker.workflow_steps s
    WHERE s.awaits_worker_since IS NOT NULL AND s.namespace = p.namespace AND s.handler = p.handler
      AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = 'redispatch' AND w.task_uuid = s.task_uuid)
    ORDER BY s.awaits_worker_since
    LIMIT $1
) q
LIMIT $1;

-- name: stopAutoRecovery
UPDATE tasker.workflow_steps SET awaits_worker_since = NULL WHERE task_uuid = ANY ($1) AND num_nonnulls(awaits_worker_since) = 1;

-- name: stopReminders
UPDATE tasker.workflow_steps SET remind_at = NULL WHERE task_uuid = ANY ($1) AND num_nonnulls(remind_at) = 1;

-- name: servedSteps
-- Using IS NOT NULL instead of num_nonnulls would mislead the planner.
SELECT s.task_uuid, s.step_uuid
FROM tasker.workflow_steps s
WHERE s.task_uuid = ANY ($1) AND num_nonnulls(s.awaits_worker_since) = 1
  AND EXISTS (
      SELECT FROM tasker.workers w
      WHERE s.namespace = ANY (w.namespaces) AND s.handler = ANY (w.handlers) AND w.left_at IS NULL AND w.draining_since IS NULL AND w.last_heartbeat_at >= now() - interval '2 hours'
        AND w.last_heartbeat_at + 3 * w.heartbeat_interval >= clock_timestamp()
  )
ORDER BY s.task_uuid, s.step_uuid;

-- name: recoverServed
-- $1 tasks, $2 time.
WITH recovered AS (
    UPDATE tasker.tasks_dlq d
    SET recovered_at = $2, updated_at = $2
    WHERE d.task_uuid = ANY ($1) AND d.resolution_status = 'pending' AND d.recovered_at IS NULL
      AND d.dlq_reason IN ('worker_unavailable', 'staleness_timeout')
      AND NOT EXISTS (SELECT FROM tasker.workflow_steps s WHERE s.task_uuid = d.task_uuid AND s.state = 'error' AND s.next_retry_at IS NULL)
    RETURNING d.dlq_entry_uuid
)
INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, changed_at)
SELECT dlq_entry_uuid, 'recovered', 'tasker', 'pending', 'pending', 'a worker is alive: what waited for it is in the queue again', $2
FROM recovered
ORDER BY dlq_entry_uuid;
