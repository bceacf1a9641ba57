-- name: selectEntryStats
SELECT dlq_reason::text AS reason, total_entries AS total, pending, manually_resolved, permanent_failures, cancelled,
    oldest_entry AS oldest, newest_entry AS newest, avg_resolution_time_minutes::float8
FROM tasker.v_dlq_dashboard
ORDER BY total DESC, reason;

-- name: countEntryStats
-- selectEntryStats for the namespaces $1. Ended investigations are counted from stored totals.
SELECT r.dlq_reason::text AS reason, sum(r.entries)::bigint AS total,
    coalesce(sum(r.entries) FILTER (WHERE r.resolution_status = 'pending'), 0)::bigint AS pending,
    coalesce(sum(r.entries) FILTER (WHERE r.resolution_status = 'manually_resolved'), 0)::bigint AS manually_resolved,
    coalesce(sum(r.entries) FILTER (WHERE r.resolution_status = 'permanently_failed'), 0)::bigint AS permanent_failures,
    coalesce(sum(r.entries) FILTER (WHERE r.resolution_status = 'cancelled'), 0)::bigint AS cancelled,
    min(r.oldest_entry) AS oldest, max(r.newest_entry) AS newest,
    (sum(r.open_seconds) / nullif(sum(r.entries) FILTER (WHERE r.resolution_status <> 'pending'), 0) / 60)::float8 AS avg_resolution_time_minutes
FROM (
    SELECT t.dlq_reason, t.resolution_status, t.entries, t.open_seconds, t.oldest_entry, t.newest_entry
    FROM tasker.dlq_totals t
    WHERE t.namespace = ANY ($1)
    UNION ALL
    SELECT d.dlq_reason, 'pending', count(*), 0, min(d.dlq_timestamp), max(d.dlq_timestamp)
    FROM tasker.tasks_dlq d
    WHERE d.namespace = ANY ($1) AND d.resolution_status = 'pending'
    GROUP BY d.dlq_reason
) r
GROUP BY r.dlq_reason
ORDER BY total DESC, reason;

-- name: countOpenEntries
SELECT (SELECT count(*) FROM tasker.tasks_dlq WHERE resolution_status = 'pending'), (
WITH RECURSIVE names AS (
    (SELECT namespace FROM tasker.task_templates ORDER BY namespace LIMIT 1)
    UNION ALL
    SELECT (SELECT t.namespace FROM tasker.task_templates t WHERE t.namespace > n.namespace ORDER BY t.namespace LIMIT 1)
    FROM names n
    WHERE n.namespace IS NOT NULL
)
SELECT array(SELECT namespace FROM names WHERE namespace IS NOT NULL LIMIT $1));
