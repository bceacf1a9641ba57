-- name: selectNow
SELECT clock_timestamp();

-- name: selectQueues
-- Finds the oldest step of a queue by skipping from priority to priority. Counts only steps in the
-- returned queues, up to $3. Checks only the first rows for outdated ones: checking 10,000 rows
-- would
-- read 30,000 pages instead of 300.
WITH RECURSIVE asked AS (SELECT $1::text AS namespace),
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
awaiting AS (
    (
        SELECT s.namespace, s.handler
        FROM tasker.workflow_steps s WHERE s.awaits_worker_since IS NOT NULL AND (s.namespace, s.handler) >= ((SELECT a.namespace FROM asked a), '')
        ORDER BY s.namespace, s.handler
        LIMIT 1
    )
    UNION ALL
    SELECT n.namespace, n.handler
    FROM awaiting q
    CROSS JOIN LATERAL (
        SELECT s.namespace, s.handler
        FROM tasker.workflow_steps s WHERE s.awaits_worker_since IS NOT NULL AND (s.namespace, s.handler) > (q.namespace, q.handler)
        ORDER BY s.namespace, s.handler
        LIMIT 1
    ) n
    WHERE (SELECT a.namespace FROM asked a) IN ('', q.namespace)
),
parked AS (
    (
        SELECT s.namespace, s.handler
        FROM tasker.held_steps s WHERE true AND (s.namespace, s.handler) >= ((SELECT a.namespace FROM asked a), '')
        ORDER BY s.namespace, s.handler
        LIMIT 1
    )
    UNION ALL
    SELECT n.namespace, n.handler
    FROM parked q
    CROSS JOIN LATERAL (
        SELECT s.namespace, s.handler
        FROM tasker.held_steps s WHERE true AND (s.namespace, s.handler) > (q.namespace, q.handler)
        ORDER BY s.namespace, s.handler
        LIMIT 1
    ) n
    WHERE (SELECT a.namespace FROM asked a) IN ('', q.namespace)
),
groups AS MATERIALIZED (
    SELECT w.namespaces, w.handlers, count(*) AS workers
    FROM tasker.workers w
    WHERE w.left_at IS NULL AND w.draining_since IS NULL AND w.last_heartbeat_at >= now() - interval '2 hours'
      AND w.last_heartbeat_at + 3 * w.heartbeat_interval >= clock_timestamp()
    GROUP BY w.namespaces, w.handlers
),
shown AS MATERIALIZED (
    SELECT p.namespace, p.handler, coalesce(live.workers, 0) AS live_workers, oldest.queued_at, oldest.expires_at,
        least(oldest.queued_at, late.since) AS waits_since
    FROM (SELECT namespace, handler FROM enqueued UNION SELECT namespace, handler FROM awaiting UNION SELECT namespace, handler FROM parked) p
    CROSS JOIN LATERAL (
        SELECT sum(c.workers)::bigint AS workers
        FROM groups c
        WHERE p.namespace = ANY (c.namespaces) AND p.handler = ANY (c.handlers)
    ) live
    CROSS JOIN LATERAL (
        WITH RECURSIVE heads AS (
            (
                SELECT s.priority, s.state_since, s.expires_at
                FROM tasker.ready_steps s
                WHERE s.namespace = p.namespace AND s.handler = p.handler AND NOT NOT EXISTS (
        SELECT FROM tasker.workflow_steps x
        WHERE x.task_uuid = s.task_uuid AND x.step_uuid = s.step_uuid AND x.state || '' = 'enqueued' AND x.state_since = s.state_since
        OFFSET 0 -- one key lookup per row
    )
                ORDER BY s.priority DESC, s.state_since
                LIMIT 1
            )
            UNION ALL
            SELECT n.priority, n.state_since, n.expires_at
            FROM heads q
            CROSS JOIN LATERAL (
                SELECT s.priority, s.state_since, s.expires_at
                FROM tasker.ready_steps s
                WHERE s.namespace = p.namespace AND s.handler = p.handler AND s.priority < q.priority AND NOT NOT EXISTS (
        SELECT FROM tasker.workflow_steps x
        WHERE x.task_uuid = s.task_uuid AND x.step_uuid = s.step_uuid AND x.state || '' = 'enqueued' AND x.state_since = s.state_since
        OFFSET 0 -- one key lookup per row
    )
                ORDER BY s.priority DESC, s.state_since
                LIMIT 1
            ) n
        )
        SELECT min(state_since) AS queued_at, min(expires_at) AS expires_at FROM heads
    ) oldest
    CROSS JOIN LATERAL (
        SELECT min(s.awaits_worker_since) AS since
        FROM tasker.workflow_steps s
        WHERE s.awaits_worker_since IS NOT NULL AND s.namespace = p.namespace AND s.handler = p.handler
    ) late
    WHERE $1::text IN ('', p.namespace) AND ($4::text[] IS NULL OR p.namespace = ANY ($4))
    ORDER BY coalesce(live.workers, 0) > 0 OR oldest.queued_at IS NULL AND late.since IS NULL, waits_since, p.namespace, p.handler
    LIMIT $2
)
SELECT q.namespace, q.handler, least(waiting.steps, $3) AS queued, waiting.steps > $3 AS queued_is_at_least,
    q.queued_at AS oldest_queued_at, least(q.expires_at, waiting.expires_at) AS next_expires_at,
    late.steps AS awaiting_worker, held.steps AS held, limited.steps AS limited, past.steps AS saturated,
    CASE WHEN past.steps > 0 THEN (SELECT x.saturated_since FROM tasker.queues x WHERE x.namespace = q.namespace AND x.handler = q.handler) END AS saturated_since,
    q.live_workers, q.live_workers = 0 AND q.waits_since IS NOT NULL AS unserved
FROM shown q
CROSS JOIN LATERAL (
    SELECT count(*) AS steps, min(x.expires_at) AS expires_at
    FROM (
        SELECT s.expires_at
        FROM tasker.ready_steps s
        WHERE q.queued_at IS NOT NULL AND s.namespace = q.namespace AND s.handler = q.handler
        ORDER BY s.priority DESC, s.state_since
        LIMIT $3::bigint + 1
    ) x
) waiting
CROSS JOIN LATERAL (
    SELECT count(*) AS steps
    FROM (
        SELECT FROM tasker.workflow_steps s
        WHERE s.awaits_worker_since IS NOT NULL AND s.namespace = q.namespace AND s.handler = q.handler
        LIMIT $3::bigint
    ) x
) late
CROSS JOIN LATERAL (
    SELECT count(*) AS steps
    FROM (SELECT FROM tasker.held_steps s WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.hold_uuid IS NOT NULL LIMIT $3::bigint) x
) held
CROSS JOIN LATERAL (
    SELECT count(*) AS steps
    FROM (SELECT FROM tasker.held_steps s WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.limit_key_id IS NOT NULL LIMIT $3::bigint) x
) limited
CROSS JOIN LATERAL (
    SELECT count(*) AS steps
    FROM (SELECT FROM tasker.ready_steps s WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.limit_passed_at IS NOT NULL LIMIT $3::bigint) x
) past
WHERE waiting.steps + late.steps + held.steps + limited.steps > 0
ORDER BY q.live_workers > 0 OR q.waits_since IS NULL, q.waits_since, q.namespace, q.handler;

-- name: liveWorkers
SELECT n.namespace, count(*) AS workers
FROM tasker.workers w
CROSS JOIN unnest(w.namespaces) AS n (namespace)
WHERE w.left_at IS NULL AND w.draining_since IS NULL AND w.last_heartbeat_at >= now() - interval '2 hours'
      AND w.last_heartbeat_at + 3 * w.heartbeat_interval >= clock_timestamp()
GROUP BY n.namespace;
