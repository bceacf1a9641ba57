-- name: insertWorker
-- Counts live workers without a lock, so concurrent registrations may exceed the limits. Deletes
-- the
-- oldest rows beyond $12.
WITH alive AS MATERIALIZED (
    SELECT w.namespaces FROM tasker.workers w WHERE w.left_at IS NULL AND w.last_heartbeat_at >= now() - interval '2 hours' AND w.last_heartbeat_at + w.lease > clock_timestamp() ORDER BY w.last_heartbeat_at DESC LIMIT $10
),
crowded AS (
    SELECT n.namespace
    FROM unnest($3::text[]) AS n (namespace)
    JOIN (SELECT x.namespace, count(*) AS workers FROM alive a CROSS JOIN unnest(a.namespaces) AS x (namespace) GROUP BY x.namespace) c
        ON c.namespace = n.namespace
    WHERE c.workers >= $11
    LIMIT 1
),
old AS (
    DELETE FROM tasker.workers WHERE worker_uuid IN (
        SELECT worker_uuid FROM tasker.workers ORDER BY last_heartbeat_at DESC OFFSET $12 - 1 LIMIT 20
    )
),
added AS (
    INSERT INTO tasker.workers (worker_uuid, name, namespaces, handlers, version, max_concurrency, heartbeat_interval, lease, registered_by)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, nullif($9, '')
    WHERE NOT EXISTS (SELECT FROM crowded) AND (SELECT count(*) FROM alive) < $10
    RETURNING worker_uuid
)
SELECT EXISTS (SELECT FROM added) AS added, coalesce((SELECT namespace FROM crowded), '') AS crowded;

-- name: worker
SELECT name, namespaces, handlers, version, max_concurrency, lease
FROM tasker.workers WHERE worker_uuid = $1 AND left_at IS NULL;

-- name: workerAccess
SELECT namespaces, coalesce(registered_by, '') AS registered_by
FROM tasker.workers WHERE worker_uuid = $1;

-- name: removeWorker
UPDATE tasker.workers SET left_at = clock_timestamp() WHERE worker_uuid = $1 AND left_at IS NULL;

-- name: drainWorker
-- The drain is recorded in the audit log only if authentication is enabled.
WITH known AS MATERIALIZED (
    SELECT worker_uuid, name, draining_since FROM tasker.workers WHERE worker_uuid = $1 AND left_at IS NULL FOR NO KEY UPDATE
),
drained AS (
    UPDATE tasker.workers w SET draining_since = clock_timestamp()
    FROM known k
    WHERE w.worker_uuid = k.worker_uuid AND k.draining_since IS NULL
    RETURNING w.worker_uuid, k.name
),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT $2, 'worker.drained', worker_uuid::text, jsonb_build_object('name', name) FROM drained WHERE $2 <> ''
)
SELECT worker_uuid FROM known;

-- name: recordHeartbeats
-- Locks the workers in a fixed order.
WITH known AS MATERIALIZED (
    SELECT w.worker_uuid
    FROM tasker.workers w
    WHERE w.worker_uuid = ANY ($1) AND w.left_at IS NULL
    ORDER BY w.worker_uuid
    FOR NO KEY UPDATE
)
UPDATE tasker.workers w
SET last_heartbeat_at = clock_timestamp()
FROM known k
WHERE w.worker_uuid = k.worker_uuid
RETURNING w.worker_uuid, w.draining_since IS NOT NULL AS drains;

-- name: pruneWorkers
DELETE FROM tasker.workers WHERE last_heartbeat_at < clock_timestamp() - $1::interval;

-- name: selectWorkers
SELECT
    w.worker_uuid AS uuid, w.name, w.namespaces, w.handlers, w.version, w.max_concurrency, w.registered_at, w.last_heartbeat_at,
    w.draining_since, coalesce(n.held, 0) AS in_flight, coalesce(w.registered_by, '') AS registered_by,
    CASE
        WHEN w.left_at IS NOT NULL OR w.last_heartbeat_at + w.lease < clock_timestamp() THEN 'gone'
        WHEN w.last_heartbeat_at + 3 * w.heartbeat_interval < clock_timestamp() THEN 'stale'
        WHEN w.draining_since IS NOT NULL THEN 'draining'
        ELSE 'active'
    END AS health
FROM tasker.workers w
LEFT JOIN (
    SELECT s.worker_uuid, count(DISTINCT s.step_uuid) AS held
    FROM (SELECT claimed_at, tasks, steps FROM tasker.claims ORDER BY look_at DESC LIMIT 100000) c
    CROSS JOIN LATERAL unnest(c.tasks, c.steps) AS u (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
    WHERE s.lease_expires_at IS NOT NULL AND coalesce(s.last_attempted_at, s.state_since) = c.claimed_at
    GROUP BY s.worker_uuid
) n ON n.worker_uuid = w.worker_uuid
WHERE $3::text[] IS NULL OR w.namespaces <@ $3
ORDER BY w.last_heartbeat_at DESC, w.worker_uuid
LIMIT $1 OFFSET $2;

-- name: selectWorker
SELECT
    w.worker_uuid AS uuid, w.name, w.namespaces, w.handlers, w.version, w.max_concurrency, w.registered_at, w.last_heartbeat_at,
    w.draining_since, coalesce(n.held, 0) AS in_flight, coalesce(w.registered_by, '') AS registered_by,
    CASE
        WHEN w.left_at IS NOT NULL OR w.last_heartbeat_at + w.lease < clock_timestamp() THEN 'gone'
        WHEN w.last_heartbeat_at + 3 * w.heartbeat_interval < clock_timestamp() THEN 'stale'
        WHEN w.draining_since IS NOT NULL THEN 'draining'
        ELSE 'active'
    END AS health
FROM tasker.workers w
LEFT JOIN (
    SELECT s.worker_uuid, count(DISTINCT s.step_uuid) AS held
    FROM (SELECT claimed_at, tasks, steps FROM tasker.claims ORDER BY look_at DESC LIMIT 100000) c
    CROSS JOIN LATERAL unnest(c.tasks, c.steps) AS u (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
    WHERE s.lease_expires_at IS NOT NULL AND coalesce(s.last_attempted_at, s.state_since) = c.claimed_at
    GROUP BY s.worker_uuid
) n ON n.worker_uuid = w.worker_uuid
WHERE w.worker_uuid = $1;
