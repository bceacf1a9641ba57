-- name: selectStaleness
-- The list is read from its beginning to the end of the page.
SELECT task_uuid, namespace_name AS namespace, task_name, current_state AS state, time_in_state_minutes, task_age_minutes,
    staleness_threshold_minutes AS threshold_minutes, health_status AS health, priority
FROM tasker.get_task_staleness($1::integer + $2::integer, p_namespaces => $3, p_health => nullif($4, ''), p_namespace => nullif($5, ''), p_name => nullif($6, ''))
OFFSET $2;

-- name: countStaleness
SELECT l.namespace_name AS namespace, l.health_status AS health, count(*) AS tasks
FROM unnest($3::text[]) AS h (health)
CROSS JOIN LATERAL tasker.get_task_staleness($1, p_namespaces => $2, p_health => h.health, p_namespace => nullif($4, ''), p_name => nullif($5, '')) l
GROUP BY 1, 2
ORDER BY 3 DESC, 1;

-- name: sweepStale
SELECT task_uuid, namespace_name, task_name, current_state, time_in_state_minutes::float8, action_taken,
    moved_to_dlq, transition_success, staleness_threshold_minutes::float8 AS staleness_threshold,
    dlq_reason::text, coalesce(error_code, '') AS error_code, coalesce(error_message, '') AS error_message
FROM tasker.detect_and_transition_stale_tasks($1, $2, $3);
