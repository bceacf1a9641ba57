-- name: extendQueueDeadlines
-- Extends the queue timeouts of expired steps in busy queues. A queue is busy if one of its steps
-- was
-- claimed within the queue timeout, or if one of its live workers has no free slot, which is
-- checked at
-- most once per timeout. A queue without live workers is not busy. The new deadline is stored only
-- in
-- ready_steps.
--
-- $1, $2 steps, $3 default queue timeout in ms, $4 busyFor, $5 default expiry rule.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at, 'enqueued' AS enqueued),
named AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, t.template_uuid
    FROM clock c
    CROSS JOIN unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.state = c.enqueued
    JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
),
rules AS MATERIALIZED (
    SELECT p.template_uuid
    FROM (SELECT DISTINCT template_uuid FROM named) n
    JOIN tasker.task_templates p ON p.template_uuid = n.template_uuid
    WHERE coalesce(p.configuration #>> '{lifecycle,queue_ttl}', $5) <> 'always'
),
late AS MATERIALIZED (
    SELECT e.*
    FROM named s
    JOIN rules u ON u.template_uuid = s.template_uuid
    CROSS JOIN clock c
    CROSS JOIN LATERAL (
        SELECT r.ctid AS ready_row, r.namespace, r.handler, greatest(interval '1 millisecond' * coalesce(r.queue_ttl_ms, $3), $4::interval) AS patience
        FROM tasker.ready_steps r
        WHERE r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid AND r.task_uuid = s.task_uuid AND coalesce(r.expires_at <= c.at, false)
        FOR NO KEY UPDATE SKIP LOCKED
    ) e
),
taken AS MATERIALIZED (
    SELECT s.worker_uuid, count(DISTINCT s.step_uuid) AS held
    FROM (SELECT claimed_at, tasks, steps FROM tasker.claims ORDER BY look_at DESC LIMIT 100000) c
    CROSS JOIN LATERAL unnest(c.tasks, c.steps) AS u (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
    WHERE s.lease_expires_at IS NOT NULL AND coalesce(s.last_attempted_at, s.state_since) = c.claimed_at
    GROUP BY s.worker_uuid
),
busy AS MATERIALIZED (
    SELECT l.namespace, l.handler, CASE
        WHEN q.busy_at + l.patience > c.at THEN q.busy_at
        WHEN EXISTS (
            SELECT FROM tasker.workers w
            JOIN taken n ON n.worker_uuid = w.worker_uuid
            WHERE l.namespace = ANY (w.namespaces) AND l.handler = ANY (w.handlers) AND w.left_at IS NULL AND w.draining_since IS NULL AND w.last_heartbeat_at >= now() - interval '2 hours'
      AND w.last_heartbeat_at + 3 * w.heartbeat_interval >= clock_timestamp() AND n.held >= w.max_concurrency
        ) THEN c.at END AS busy_at
    FROM (SELECT namespace, handler, min(patience) AS patience FROM late GROUP BY namespace, handler) l
    CROSS JOIN clock c
    LEFT JOIN tasker.queues q ON q.namespace = l.namespace AND q.handler = l.handler
    WHERE EXISTS (
        SELECT FROM tasker.workers w WHERE l.namespace = ANY (w.namespaces) AND l.handler = ANY (w.handlers) AND w.left_at IS NULL AND w.draining_since IS NULL AND w.last_heartbeat_at >= now() - interval '2 hours'
      AND w.last_heartbeat_at + 3 * w.heartbeat_interval >= clock_timestamp()
    )
),
extended AS (
    UPDATE tasker.ready_steps r
    SET expires_at = b.busy_at + l.patience, limit_passed_at = coalesce(r.limit_passed_at, r.expires_at)
    FROM late l
    JOIN busy b ON b.namespace = l.namespace AND b.handler = l.handler
    CROSS JOIN clock c
    WHERE r.ctid = l.ready_row AND b.busy_at + l.patience > c.at
    RETURNING r.task_uuid, r.step_uuid, r.namespace, r.handler, b.busy_at
),
noted AS (
    INSERT INTO tasker.queues AS q (namespace, handler, busy_at, saturated_since, kept_at)
    SELECT k.namespace, k.handler, max(k.busy_at), c.at, c.at
    FROM extended k
    CROSS JOIN clock c
    GROUP BY k.namespace, k.handler, c.at
    ORDER BY k.namespace, k.handler
    ON CONFLICT (namespace, handler) DO UPDATE
    SET busy_at = greatest(q.busy_at, excluded.busy_at), saturated_since = coalesce(q.saturated_since, excluded.saturated_since), kept_at = excluded.kept_at
    RETURNING q.namespace, q.handler, q.queue_uuid, q.saturated_since
)
SELECT k.task_uuid, k.step_uuid, n.namespace, n.handler, n.queue_uuid, n.saturated_since, n.saturated_since = c.at AS began
FROM extended k
JOIN noted n ON n.namespace = k.namespace AND n.handler = k.handler
CROSS JOIN clock c;

-- name: noteBusy
-- Locks the queues in a fixed order.
INSERT INTO tasker.queues AS q (namespace, handler, busy_at)
SELECT n.namespace, n.handler, clock_timestamp()
FROM unnest($1::text[], $2::text[]) AS n (namespace, handler)
ORDER BY n.namespace, n.handler
ON CONFLICT (namespace, handler) DO UPDATE SET busy_at = greatest(q.busy_at, excluded.busy_at);

-- name: relieveQueues
WITH relieved AS MATERIALIZED (
    SELECT q.namespace, q.handler, q.saturated_since
    FROM tasker.queues q
    WHERE q.saturated_since IS NOT NULL AND q.kept_at <= clock_timestamp() - $1::interval
      AND NOT EXISTS (SELECT FROM tasker.ready_steps s WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.limit_passed_at IS NOT NULL)
    ORDER BY q.namespace, q.handler
    LIMIT $2
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasker.queues q
SET saturated_since = NULL, kept_at = NULL
FROM relieved r
WHERE q.namespace = r.namespace AND q.handler = r.handler
RETURNING q.queue_uuid, q.namespace, q.handler, r.saturated_since;

-- name: pruneQueues
DELETE FROM tasker.queues q
WHERE (q.namespace, q.handler) IN (
    SELECT o.namespace, o.handler FROM tasker.queues o
    WHERE o.saturated_since IS NULL AND o.busy_at < clock_timestamp() - $1::interval
    ORDER BY o.namespace, o.handler
    LIMIT $2
    FOR UPDATE SKIP LOCKED
);
