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

-- name: expireSteps
-- Competes with claims for the row, so that exactly one of them wins. The attempt is not counted. A
-- step
-- that has expired $3 times in succession while a worker was live waits for an operator. A step
-- expires
-- before its timeout if no worker was live for $4. The state comes from clock to guide the planner.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at, 'enqueued' AS enqueued, clock_timestamp() - $4::interval AS since),
due AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.expires_at, coalesce(r.expires_at > c.at, true) AS unserved, r.limit_passed_at
    FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
    CROSS JOIN clock c
    LEFT JOIN tasker.ready_steps r ON r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid AND r.task_uuid = s.task_uuid
    WHERE s.state = c.enqueued AND NOT EXISTS (SELECT FROM tasker.held_steps q WHERE q.task_uuid = s.task_uuid AND q.step_uuid = s.step_uuid) AND (coalesce(r.expires_at <= c.at, false) OR coalesce(s.state_since <= c.since, false) AND NOT EXISTS (
        SELECT FROM tasker.workers w
        WHERE s.namespace = ANY (w.namespaces) AND s.handler = ANY (w.handlers) AND coalesce(least(w.left_at, w.draining_since), 'infinity') > c.since AND w.last_heartbeat_at >= c.since - interval '2 hours'
      AND w.last_heartbeat_at + 3 * w.heartbeat_interval > c.since
    ))
    ORDER BY s.task_uuid, s.step_uuid
    FOR NO KEY UPDATE OF s
),
unqueued AS (
    DELETE FROM tasker.ready_steps r
    USING due s
    WHERE r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid
),
served AS MATERIALIZED (
    SELECT p.namespace, p.handler, n.workers, q.busy_at
    FROM (SELECT DISTINCT namespace, handler FROM due) p
    LEFT JOIN tasker.queues q ON q.namespace = p.namespace AND q.handler = p.handler
    CROSS JOIN LATERAL (
        SELECT count(*) AS workers
        FROM tasker.workers w
        WHERE p.namespace = ANY (w.namespaces) AND p.handler = ANY (w.handlers) AND w.left_at IS NULL AND w.draining_since IS NULL AND w.last_heartbeat_at >= now() - interval '2 hours'
      AND w.last_heartbeat_at + 3 * w.heartbeat_interval >= clock_timestamp()
    ) n
),
moved AS (
    UPDATE tasker.workflow_steps s
    SET state = 'error', state_since = c.at, updated_at = c.at, last_failure_at = c.at, expires_at = NULL,
        attempts = s.attempts - 1,
        queue_expiries = s.queue_expiries + CASE WHEN v.workers > 0 THEN 1 ELSE 0 END,
        awaits_worker_since = CASE WHEN v.workers = 0 OR s.queue_expiries + 1 < $3 THEN c.at END,
        error = jsonb_build_object('type', 'queue_expiry', 'retryable', true, 'message', CASE WHEN d.unserved THEN format(
            'no worker is alive: for %s s there was none for handler %s of namespace %s', trim_scale(extract(epoch FROM $4::interval)), d.handler, d.namespace)
        ELSE format(
            'worker queue TTL expired: no worker took the step within %s s; %s',
            trim_scale(round(extract(epoch FROM d.expires_at - d.state_since), 3)),
            CASE v.workers
                WHEN 0 THEN format('none for handler %s of namespace %s is alive', d.handler, d.namespace)
                WHEN 1 THEN format('one for handler %s of namespace %s is alive', d.handler, d.namespace)
                ELSE format('%s for handler %s of namespace %s are alive', v.workers, d.handler, d.namespace)
            END || CASE WHEN d.limit_passed_at IS NOT NULL AND v.workers > 0 THEN format(
                ', and no step of the queue was claimed for %s s', round(extract(epoch FROM c.at - v.busy_at))) ELSE '' END) END)
    FROM due d
    JOIN served v ON v.namespace = d.namespace AND v.handler = d.handler
    CROSS JOIN clock c
    WHERE s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
    RETURNING s.task_uuid, s.step_uuid, s.attempts + 1 AS attempt, s.state_since AS at, s.error, s.queue_expiries,
        s.awaits_worker_since IS NOT NULL AS returns, d.namespace, d.handler, d.state_since AS queued_at, d.expires_at, d.limit_passed_at IS NOT NULL AS kept, d.unserved, v.workers, v.busy_at
),
log AS (
    INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, detail, created_at)
    SELECT task_uuid, step_uuid, 'enqueued', 'error', 'expire', attempt, error, at
    FROM moved
    ORDER BY task_uuid, step_uuid
)
SELECT task_uuid, step_uuid, namespace, handler, queued_at, expires_at, kept, unserved, workers, busy_at, queue_expiries, returns FROM moved;

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
