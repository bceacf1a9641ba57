CREATE OR REPLACE VIEW tasker.v_task_staleness_monitoring AS
SELECT
    t.task_uuid,
    t.namespace AS namespace_name,
    t.name AS task_name,
    t.state AS current_state,
    round(extract(epoch FROM clock_timestamp() - t.state_since) / 60, 3) AS time_in_state_minutes,
    round(extract(epoch FROM clock_timestamp() - t.created_at) / 60, 3) AS task_age_minutes,
    round(extract(epoch FROM t.stale_at - t.state_since) / 60, 3) AS staleness_threshold_minutes,
    CASE
        WHEN t.warn_at > clock_timestamp() THEN 'healthy'
        WHEN EXISTS (SELECT FROM tasker.steps_within_timeout(t.task_uuid, t.template_uuid, clock_timestamp())) THEN 'healthy'
        WHEN t.stale_at <= clock_timestamp() THEN 'stale'
        ELSE 'warning'
    END AS health_status,
    t.priority
FROM tasker.tasks t
WHERE t.stale_at IS NOT NULL;
COMMENT ON VIEW tasker.v_task_staleness_monitoring IS 'How near each watched task is to its staleness threshold: healthy, warning from 80 %, stale from 100 %. A task with a step that is worked on within its own timeout is healthy.';
