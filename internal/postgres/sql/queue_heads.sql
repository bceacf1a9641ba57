-- name: selectAllHeads
-- Skips from priority to priority and from queue to queue.
WITH RECURSIVE heads AS (
    (
        SELECT s.namespace, s.handler, s.priority, s.state_since FROM tasker.ready_steps s
        ORDER BY s.namespace, s.handler, s.priority DESC, s.state_since LIMIT 1
    )
    UNION ALL
    SELECT n.*
    FROM heads h
    CROSS JOIN LATERAL (
        SELECT * FROM (
            (
                SELECT s.namespace, s.handler, s.priority, s.state_since FROM tasker.ready_steps s
                WHERE s.namespace = h.namespace AND s.handler = h.handler AND s.priority < h.priority
                ORDER BY s.namespace, s.handler, s.priority DESC, s.state_since LIMIT 1
            )
            UNION ALL
            (
                SELECT s.namespace, s.handler, s.priority, s.state_since FROM tasker.ready_steps s
                WHERE s.namespace = h.namespace AND s.handler > h.handler
                ORDER BY s.namespace, s.handler, s.priority DESC, s.state_since LIMIT 1
            )
            UNION ALL
            (
                SELECT s.namespace, s.handler, s.priority, s.state_since FROM tasker.ready_steps s
                WHERE s.namespace > h.namespace
                ORDER BY s.namespace, s.handler, s.priority DESC, s.state_since LIMIT 1
            )
        ) x
        LIMIT 1
    ) n
)
(SELECT namespace, handler, priority, state_since AS since, now() AS at FROM heads LIMIT $1)
UNION ALL
SELECT '', '', 0, NULL, now();

-- name: selectHeads
SELECT l.namespace, l.handler, l.priority::int AS priority, (
    SELECT s.state_since FROM tasker.ready_steps s
    WHERE s.namespace = l.namespace AND s.handler = l.handler AND s.priority = l.priority AND s.state_since >= l.since
    ORDER BY s.state_since LIMIT 1
) AS since, now() AS at
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[]) AS l (namespace, handler, priority, since);

-- name: selectLevels
-- Selects the nonempty queues with namespaces $1 and handlers $2, and the priorities of their steps.
-- Skips from queue to queue and from priority to priority, and returns at most $3 rows.
WITH RECURSIVE waiting AS (
    SELECT n.namespace, (
        SELECT s.handler FROM tasker.ready_steps s
        WHERE s.namespace = n.namespace
        ORDER BY s.handler LIMIT 1
    ) AS handler
    FROM unnest($1::text[]) AS n (namespace)
    UNION ALL
    SELECT q.namespace, (
        SELECT s.handler FROM tasker.ready_steps s
        WHERE s.namespace = q.namespace AND s.handler > q.handler
        ORDER BY s.handler LIMIT 1
    )
    FROM waiting q
    WHERE q.handler IS NOT NULL
),
levels AS (
    SELECT q.namespace, q.handler, (
        SELECT s.priority FROM tasker.ready_steps s
        WHERE s.namespace = q.namespace AND s.handler = q.handler
        ORDER BY s.priority DESC LIMIT 1
    ) AS priority
    FROM waiting q
    WHERE q.handler = ANY ($2::text[])
    UNION ALL
    SELECT l.namespace, l.handler, (
        SELECT s.priority FROM tasker.ready_steps s
        WHERE s.namespace = l.namespace AND s.handler = l.handler AND s.priority < l.priority
        ORDER BY s.priority DESC LIMIT 1
    )
    FROM levels l
    WHERE l.priority IS NOT NULL
)
SELECT namespace, handler, priority FROM levels WHERE priority IS NOT NULL LIMIT $3;
