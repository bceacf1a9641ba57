-- name: selectInvestigationQueue
-- The view is ordered by urgency.
SELECT dlq_entry_uuid AS entry_uuid, task_uuid, step_uuid, original_state, dlq_reason::text AS reason, detail_code, dlq_timestamp AS at,
    minutes_in_dlq::float8, namespace_name AS namespace, task_name, current_state, time_in_state_minutes::float8,
    priority_score::float8, recovered_at, coalesce(step_name, '') AS step_name, coalesce(error_pattern, '') AS error_pattern,
    case_key, coalesce(assignee, '') AS assignee, case_id, coalesce(error_message, '') AS error_message, progress
FROM tasker.v_dlq_investigation_queue
WHERE true /* conditions */
LIMIT $1 OFFSET $2;

-- name: selectInvestigationQueueOf
-- selectInvestigationQueue for the namespaces $3. It merges the most urgent investigations of each.
SELECT dlq_entry_uuid AS entry_uuid, task_uuid, step_uuid, original_state, dlq_reason::text AS reason, detail_code, dlq_timestamp AS at,
    minutes_in_dlq::float8, namespace_name AS namespace, task_name, current_state, time_in_state_minutes::float8,
    priority_score::float8, recovered_at, coalesce(step_name, '') AS step_name, coalesce(error_pattern, '') AS error_pattern,
    case_key, coalesce(assignee, '') AS assignee, case_id, coalesce(error_message, '') AS error_message, progress
FROM unnest($3::text[]) AS n (namespace)
CROSS JOIN LATERAL (
    SELECT *
    FROM tasker.v_dlq_investigation_queue
    WHERE namespace_name = n.namespace AND namespace_name > '' /* conditions */
    LIMIT $1::bigint + $2::bigint
) q
ORDER BY (recovered_at IS NOT NULL), priority_at, dlq_entry_uuid
LIMIT $1 OFFSET $2;
