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
-- While a
-- transaction between these is open, the horizon separates the events. Restored events that are not
-- yet
-- adopted are ignored (see adoptSinks).
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
