CREATE OR REPLACE VIEW tasker.v_dlq_dashboard AS
SELECT
    d.dlq_reason,
    count(*) AS total_entries,
    count(*) FILTER (WHERE d.resolution_status = 'pending') AS pending,
    count(*) FILTER (WHERE d.resolution_status = 'manually_resolved') AS manually_resolved,
    count(*) FILTER (WHERE d.resolution_status = 'permanently_failed') AS permanent_failures,
    count(*) FILTER (WHERE d.resolution_status = 'cancelled') AS cancelled,
    min(d.dlq_timestamp) AS oldest_entry,
    max(d.dlq_timestamp) AS newest_entry,
    avg(extract(epoch FROM d.resolved_at - d.dlq_timestamp) / 60) FILTER (WHERE d.resolved_at IS NOT NULL) AS avg_resolution_time_minutes
FROM tasker.tasks_dlq d
GROUP BY d.dlq_reason;
COMMENT ON VIEW tasker.v_dlq_dashboard IS 'Investigations counted by reason. The average time to resolve counts ended ones only.';
