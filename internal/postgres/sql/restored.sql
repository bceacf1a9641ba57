-- name: adoptEvents
-- Marks visible events with a future transaction id, which come from the dumped database. Starts
-- with
-- the lowest ids, which this database reaches first. The ids are still needed while a sink is not
-- adopted.
WITH now AS MATERIALIZED (SELECT pg_snapshot_xmax(pg_current_snapshot()) AS next),
old AS MATERIALIZED (
    SELECT o.position
    FROM now n
    JOIN tasker.outbox o ON o.written_in >= n.next
    WHERE NOT EXISTS (SELECT FROM tasker.emission_sinks s WHERE s.events AND (s.taken_before > n.next OR pg_snapshot_xmax(s.opened_in) > n.next))
    ORDER BY o.written_in, o.position
    LIMIT $1
    FOR NO KEY UPDATE OF o SKIP LOCKED
)
UPDATE tasker.outbox o SET written_in = '3' FROM old WHERE o.position = old.position;

-- name: adoptSinks
-- Adds the events of a restored database that sinks have not received to their delivery lists, and
-- makes
-- the sinks continue after this snapshot. Since a restored database restarts its transaction ids,
-- these
-- events appear to be in the future. Their ids exclude them until adoptEvents marks them as old.
WITH now AS MATERIALIZED (
    SELECT pg_current_snapshot() AS snapshot, pg_snapshot_xmax(pg_current_snapshot()) AS next, pg_snapshot_xmin(pg_current_snapshot()) AS horizon
),
sink AS MATERIALIZED (
    SELECT s.sink, s.created_at, s.taken_before, s.opened_in
    FROM now n
    CROSS JOIN tasker.emission_sinks s
    WHERE s.events AND (s.taken_before > n.next OR pg_snapshot_xmax(s.opened_in) > n.next)
    FOR NO KEY UPDATE OF s
),
adopted AS (
    UPDATE tasker.emission_sinks s
    SET taken_before = n.horizon, opened_in = n.snapshot
    FROM sink k
    CROSS JOIN now n
    WHERE s.sink = k.sink
)
INSERT INTO tasker.emissions (sink, position, event_uuid, task_uuid, namespace, next_attempt_at)
SELECT s.sink, o.position, o.event_uuid, o.task_uuid, o.namespace, o.created_at
FROM sink s
CROSS JOIN LATERAL (SELECT max(e.position) AS position FROM tasker.emissions e WHERE e.sink = s.sink) last
JOIN tasker.outbox o ON o.position > coalesce(last.position, 0) AND o.created_at >= s.created_at
UNION ALL
SELECT s.sink, o.position, o.event_uuid, o.task_uuid, o.namespace, o.created_at
FROM sink s
JOIN tasker.outbox o ON o.written_in >= s.taken_before AND NOT pg_visible_in_snapshot(o.written_in, s.opened_in)
ON CONFLICT DO NOTHING;

-- name: restoredEvents
SELECT EXISTS (SELECT FROM tasker.outbox o WHERE o.written_in >= pg_snapshot_xmax(pg_current_snapshot()));
