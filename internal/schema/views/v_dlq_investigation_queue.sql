CREATE OR REPLACE VIEW tasker.v_dlq_investigation_queue AS
SELECT
    d.dlq_entry_uuid,
    d.task_uuid,
    d.step_uuid,
    d.original_state,
    d.dlq_reason,
    d.detail_code,
    d.dlq_timestamp,
    round(extract(epoch FROM clock_timestamp() - d.dlq_timestamp) / 60, 3) AS minutes_in_dlq,
    d.namespace AS namespace_name,
    d.task_name,
    t.state AS current_state,
    CASE
        WHEN d.time_in_state_minutes IS NOT NULL THEN d.time_in_state_minutes
        WHEN jsonb_typeof(d.task_snapshot -> 'time_in_state_minutes') = 'number' -- unless it is hidden
            THEN (d.task_snapshot ->> 'time_in_state_minutes')::numeric
    END AS time_in_state_minutes,
    round(extract(epoch FROM clock_timestamp() - d.priority_at) / 60, 3) AS priority_score,
    d.recovered_at,
    d.step_name,
    d.error_pattern,
    d.case_key,
    d.metadata ->> 'assignee' AS assignee,
    d.priority_at,
    f.case_id,
    m.error_message,
    CASE
        WHEN m.recovered_at IS NOT NULL THEN 'recovered'
        WHEN m.acted_at > coalesce(m.failed_again_at, '-infinity') THEN 'proving'
        WHEN m.failed_again_at IS NOT NULL THEN 'failed_again'
        ELSE 'waiting'
    END AS progress
FROM tasker.tasks_dlq d
JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
LEFT JOIN tasker.case_members m ON m.dlq_entry_uuid = d.dlq_entry_uuid
LEFT JOIN tasker.case_fingerprints f ON f.fingerprint = m.fingerprint
WHERE d.resolution_status = 'pending'
ORDER BY (d.recovered_at IS NOT NULL), d.priority_at, d.dlq_entry_uuid;
COMMENT ON VIEW tasker.v_dlq_investigation_queue IS 'Open investigations, the most urgent first; those whose task recovered by itself come last.';
