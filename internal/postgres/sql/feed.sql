-- name: horizon
-- Restoring or promoting a cluster changes its timeline or identifier.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS transaction,
    left(md5(concat_ws(' ', c.system_identifier, d.oid,
        CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END)), 12) AS database
FROM pg_control_system() c
CROSS JOIN pg_database d
WHERE d.datname = current_database();

-- name: splitTasks
-- Of two events of a task, the one with the higher position may have the lower transaction id.
-- While a transaction between these is open, the horizon separates the events. Restored events that
-- are not yet adopted are ignored (see adoptSinks).
WITH ahead AS MATERIALIZED (
    SELECT o.position FROM tasker.outbox o
    WHERE o.written_in >= $2::bigint::text::xid8 AND o.written_in < pg_snapshot_xmax(pg_current_snapshot())
),
since AS MATERIALIZED (
    SELECT min(position) AS position FROM ahead
),
recent AS MATERIALIZED (
    SELECT o.written_in::text::bigint AS written_in,
        max(o.written_in::text::bigint) OVER (PARTITION BY o.task_uuid ORDER BY o.position) AS newest_so_far
    FROM since s
    JOIN tasker.outbox o ON o.position >= s.position
    WHERE o.written_in < pg_snapshot_xmax(pg_current_snapshot())
)
SELECT coalesce(min(r.written_in), 0)
FROM recent r
WHERE r.newest_so_far >= $2 AND r.written_in < $2 AND r.written_in >= $1;

-- name: feedBounds
-- MATERIALIZED keeps the planner from scanning all positions in order.
WITH found AS MATERIALIZED (
    SELECT o.position
    FROM tasker.outbox o
    WHERE o.written_in >= $1::text::xid8 AND o.written_in < $2::text::xid8
)
SELECT coalesce(min(position), 0), coalesce(max(position), 0) FROM found;

-- name: feedBoundsOf
-- feedBounds for the namespaces $3.
WITH found AS MATERIALIZED (
    SELECT o.position
    FROM unnest($3::text[]) AS n (namespace)
    CROSS JOIN LATERAL (
        SELECT o.position FROM tasker.outbox o
        WHERE (o.namespace, o.written_in) >= (n.namespace, $1::text::xid8)
          AND (o.namespace, o.written_in) < (n.namespace, $2::text::xid8)
        ORDER BY o.namespace, o.written_in OFFSET 0
    ) o
)
SELECT coalesce(min(position), 0), coalesce(max(position), 0) FROM found;

-- name: feedEvents
-- A page is read by position and filtered by transaction in Go. The cost of sorting each page would
-- be quadratic.
SELECT o.position, o.event_uuid AS uuid, o.topic, o.task_uuid,
    coalesce(o.dlq_entry_uuid, '00000000-0000-0000-0000-000000000000') AS entry_uuid, o.created_at AS at, o.data,
    o.written_in::text::bigint AS written_in
FROM (
    SELECT * FROM tasker.outbox o
    WHERE o.position > $1 AND o.position <= $2
    ORDER BY o.position
    LIMIT $3
) o
ORDER BY o.position;

-- name: feedEventsOf
-- feedEvents for the namespaces $4. It merges the next events of each.
SELECT o.position, o.event_uuid AS uuid, o.topic, o.task_uuid,
    coalesce(o.dlq_entry_uuid, '00000000-0000-0000-0000-000000000000') AS entry_uuid, o.created_at AS at, o.data,
    o.written_in::text::bigint AS written_in
FROM (
    SELECT e.*
    FROM unnest($4::text[]) AS n (namespace)
    CROSS JOIN LATERAL (
        SELECT * FROM tasker.outbox o
        WHERE (o.namespace, o.position) > (n.namespace, $1) AND (o.namespace, o.position) <= (n.namespace, $2)
        ORDER BY o.namespace, o.position
        LIMIT $3
    ) e
    ORDER BY e.position
    LIMIT $3
) o
ORDER BY o.position;
