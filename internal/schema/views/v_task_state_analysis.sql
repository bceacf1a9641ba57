CREATE OR REPLACE VIEW tasker.v_task_state_analysis AS
SELECT
    t.task_uuid,
    t.correlation_id,
    t.namespace AS namespace_name,
    t.name AS task_name,
    t.version AS task_version,
    t.state AS current_state,
    t.state_since AS state_entered_at,
    round(extract(epoch FROM clock_timestamp() - t.state_since) / 60, 3) AS time_in_state_minutes,
    round(extract(epoch FROM clock_timestamp() - t.created_at) / 60, 3) AS task_age_minutes,
    round(extract(epoch FROM t.stale_at - t.state_since) / 60, 3) AS staleness_threshold_minutes,
    t.warn_at,
    t.stale_at,
    t.ends_at,
    t.priority
FROM tasker.tasks t
WHERE t.stale_at IS NOT NULL;
COMMENT ON VIEW tasker.v_task_state_analysis IS 'Every task in a watched state, with how long it has been there and how long it may.';
