-- name: failingQueues
SELECT DISTINCT b.namespace, b.handler FROM tasker.breaker_counts b
WHERE b.server_uuid <> $1 AND b.counted_at > now() - $2::interval AND b.cause_key <> '';

-- name: shareBreakerCounts
-- $1 server, $2 how long counts are valid; then the counts.
WITH mine AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::int[], $8::int[], $9::int[])
        AS u (namespace, handler, cause_key, cause, failed, tasks, concluded)
),
shared AS (
    INSERT INTO tasker.breaker_counts (server_uuid, namespace, handler, cause_key, cause, failed, tasks, concluded)
    SELECT $1, m.* FROM mine m ORDER BY m.namespace, m.handler, m.cause_key
    ON CONFLICT (server_uuid, namespace, handler, cause_key) DO UPDATE
    SET cause = excluded.cause, failed = excluded.failed, tasks = excluded.tasks, concluded = excluded.concluded, counted_at = clock_timestamp()
),
live AS MATERIALIZED (
    SELECT b.* FROM tasker.breaker_counts b
    WHERE b.server_uuid <> $1 AND b.counted_at > now() - $2::interval
      AND NOT EXISTS ( -- failures before the end of the handler's last hold no longer count
          SELECT FROM tasker.holds h WHERE h.kind = 'breaker' AND h.namespace = b.namespace AND h.handler = b.handler AND h.ended_at > b.counted_at
      )
),
old AS (
    DELETE FROM tasker.breaker_counts b
    WHERE (b.server_uuid, b.namespace, b.handler, b.cause_key) IN (
        SELECT o.server_uuid, o.namespace, o.handler, o.cause_key FROM tasker.breaker_counts o
        WHERE o.counted_at < now() - interval '1 minute' AND o.server_uuid <> $1
        LIMIT 100 FOR UPDATE SKIP LOCKED
    )
)
SELECT m.namespace, m.handler, m.cause_key, m.cause,
    (m.failed + o.failed)::int AS failed, (m.tasks + o.tasks)::int AS tasks, (m.concluded + e.concluded)::int AS concluded
FROM mine m
CROSS JOIN LATERAL (
    SELECT coalesce(sum(l.failed), 0) AS failed, coalesce(sum(l.tasks), 0) AS tasks
    FROM live l WHERE l.namespace = m.namespace AND l.handler = m.handler AND l.cause_key = m.cause_key
) o
CROSS JOIN LATERAL ( -- each row of a server repeats them
    SELECT coalesce(sum(n.concluded), 0) AS concluded
    FROM (
        SELECT max(l.concluded) AS concluded FROM live l WHERE l.namespace = m.namespace AND l.handler = m.handler GROUP BY l.server_uuid
    ) n
) e
WHERE m.cause_key <> '';
