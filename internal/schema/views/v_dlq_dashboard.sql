CREATE OR REPLACE VIEW tasker.v_dlq_dashboard AS
SELECT
    r.dlq_reason,
    sum(r.entries)::bigint AS total_entries,
    coalesce(sum(r.entries) FILTER (WHERE r.resolution_status = 'pending'), 0)::bigint AS pending,
    coalesce(sum(r.entries) FILTER (WHERE r.resolution_status = 'manually_resolved'), 0)::bigint AS manually_resolved,
    coalesce(sum(r.entries) FILTER (WHERE r.resolution_status = 'permanently_failed'), 0)::bigint AS permanent_failures,
    coalesce(sum(r.entries) FILTER (WHERE r.resolution_status = 'cancelled'), 0)::bigint AS cancelled,
    min(r.oldest_entry) AS oldest_entry,
    max(r.newest_entry) AS newest_entry,
    sum(r.open_seconds) / nullif(sum(r.entries) FILTER (WHERE r.resolution_status <> 'pending'), 0) / 60 AS avg_resolution_time_minutes
FROM (
    SELECT t.dlq_reason, t.resolution_status, t.entries, t.open_seconds, t.oldest_entry, t.newest_entry
    FROM tasker.dlq_totals t
    UNION ALL
    SELECT d.dlq_reason, 'pending', count(*), 0, min(d.dlq_timestamp), max(d.dlq_timestamp)
    FROM tasker.tasks_dlq d
    WHERE d.resolution_status = 'pending'
    GROUP BY d.dlq_reason
) r
GROUP BY r.dlq_reason;
COMMENT ON VIEW tasker.v_dlq_dashboard IS 'Investigations counted by reason. The average time to resolve counts ended ones only.';
