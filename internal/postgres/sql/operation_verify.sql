-- name: itemsToVerify
SELECT i.ordinal, i.task_uuid, i.step_uuid, i.entry_uuid, i.state, coalesce(i.released_fence, 0) AS released_fence, i.released_at, i.failed_at,
    coalesce(t.state, '') AS task, coalesce(t.outcome, '') AS task_outcome, coalesce(s.state, '') AS step, coalesce(s.name, '') AS step_name, s.map_step_uuid IS NOT NULL AS of_map, coalesce(s.step_type <> 'standard', false) AS external,
    coalesce(s.fence, 0) AS fence, s.reported_fence, coalesce(s.attempts, 0) AS attempts, s.last_failure_at, s.next_retry_at IS NOT NULL AS will_retry,
    s.awaits_worker_since IS NOT NULL AS awaits_worker, coalesce((i.made_task IS NOT NULL OR s.state = 'pending') AND t.state = 'error' AND (
    SELECT w.dlq_entry_uuid FROM tasker.tasks_dlq w
    WHERE w.task_uuid = t.task_uuid AND w.resolution_status = 'permanently_failed' AND w.resolved_at >= i.released_at
    LIMIT 1
) IS NOT NULL, false) AS written_off, coalesce(s.error ->> 'type', '') AS error_type, coalesce(s.error ->> 'message', '') AS error_message,
    coalesce(s.error ->> 'fingerprint', '') AS error_fingerprint,
    CASE WHEN s.last_failure_at > i.released_at THEN coalesce(tasker.redact_error(s.error) ->> 'message', '') ELSE '' END AS error_shown,
    s.completed_at, s.worker_uuid, coalesce(w.name, '') AS worker_name, coalesce(w.version, '') AS worker_version, d.resolution_status::text AS entry_status,
    i.made_task IS NOT NULL AS made, coalesce(n.dlq_reason::text, '') AS stuck_for, n.dlq_timestamp AS stuck_at
FROM (
    SELECT * FROM tasker.operation_items
    WHERE operation_uuid = $1 AND state BETWEEN $2 AND $2 AND ordinal > $3
    ORDER BY state, ordinal
    LIMIT $4) i
LEFT JOIN tasker.tasks t ON t.task_uuid = coalesce(i.made_task, i.task_uuid)
LEFT JOIN tasker.tasks_dlq n ON n.task_uuid = i.made_task AND n.resolution_status = 'pending' AND n.dlq_reason <> 'manual_dlq' AND n.recovered_at IS NULL
LEFT JOIN tasker.workflow_steps s ON s.task_uuid = coalesce(i.made_task, i.task_uuid) AND s.step_uuid = CASE WHEN i.made_task IS NULL THEN i.step_uuid ELSE n.step_uuid END
LEFT JOIN tasker.workers w ON w.worker_uuid = s.worker_uuid AND s.state = 'complete'
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = i.entry_uuid
WHERE CASE
    WHEN i.made_task IS NOT NULL THEN t.state IS NULL OR t.state IN ('complete', 'cancelled') OR n.dlq_entry_uuid IS NOT NULL OR t.state = 'error' AND (
    SELECT w.dlq_entry_uuid FROM tasker.tasks_dlq w
    WHERE w.task_uuid = t.task_uuid AND w.resolution_status = 'permanently_failed' AND w.resolved_at >= i.released_at
    LIMIT 1
) IS NOT NULL
    ELSE s.state IS NULL OR s.state NOT IN ('pending', 'enqueued') AND (s.state, i.state) <> ('in_progress', 'running')
       OR s.last_failure_at > coalesce(i.failed_at, i.released_at)
       OR s.state = 'pending' AND t.state = 'error' AND (
    SELECT w.dlq_entry_uuid FROM tasker.tasks_dlq w
    WHERE w.task_uuid = t.task_uuid AND w.resolution_status = 'permanently_failed' AND w.resolved_at >= i.released_at
    LIMIT 1
) IS NOT NULL
END
ORDER BY i.ordinal;

-- name: lastVerifiedItem
SELECT max(ordinal) FROM (
    SELECT ordinal FROM tasker.operation_items WHERE operation_uuid = $1 AND state BETWEEN $2 AND $2 AND ordinal > $3 ORDER BY state, ordinal LIMIT $4
) i HAVING count(*) = $4;

-- name: lockItems
SELECT i.ordinal, coalesce(i.made_task, i.task_uuid) AS task_uuid
FROM unnest($2::int[]) AS u (ordinal)
CROSS JOIN LATERAL (
    SELECT x.ordinal, x.task_uuid, x.made_task
    FROM tasker.operation_items x
    WHERE x.operation_uuid = $1 AND x.ordinal = u.ordinal AND x.state IN ('released', 'running')
    FOR NO KEY UPDATE SKIP LOCKED
) i;

-- name: lockedItemsToVerify
SELECT i.ordinal, i.task_uuid, i.step_uuid, i.entry_uuid, i.state, coalesce(i.released_fence, 0) AS released_fence, i.released_at, i.failed_at,
    coalesce(t.state, '') AS task, coalesce(t.outcome, '') AS task_outcome, coalesce(s.state, '') AS step, coalesce(s.name, '') AS step_name, s.map_step_uuid IS NOT NULL AS of_map, coalesce(s.step_type <> 'standard', false) AS external,
    coalesce(s.fence, 0) AS fence, s.reported_fence, coalesce(s.attempts, 0) AS attempts, s.last_failure_at, s.next_retry_at IS NOT NULL AS will_retry,
    s.awaits_worker_since IS NOT NULL AS awaits_worker, coalesce((i.made_task IS NOT NULL OR s.state = 'pending') AND t.state = 'error' AND (
    SELECT w.dlq_entry_uuid FROM tasker.tasks_dlq w
    WHERE w.task_uuid = t.task_uuid AND w.resolution_status = 'permanently_failed' AND w.resolved_at >= i.released_at
    LIMIT 1
) IS NOT NULL, false) AS written_off, coalesce(s.error ->> 'type', '') AS error_type, coalesce(s.error ->> 'message', '') AS error_message,
    coalesce(s.error ->> 'fingerprint', '') AS error_fingerprint,
    CASE WHEN s.last_failure_at > i.released_at THEN coalesce(tasker.redact_error(s.error) ->> 'message', '') ELSE '' END AS error_shown,
    s.completed_at, s.worker_uuid, coalesce(w.name, '') AS worker_name, coalesce(w.version, '') AS worker_version, d.resolution_status::text AS entry_status,
    i.made_task IS NOT NULL AS made, coalesce(n.dlq_reason::text, '') AS stuck_for, n.dlq_timestamp AS stuck_at
FROM (
    SELECT x.*
    FROM unnest($2::int[]) AS u (ordinal)
    CROSS JOIN LATERAL (SELECT * FROM tasker.operation_items WHERE operation_uuid = $1 AND ordinal = u.ordinal OFFSET 0) x) i
LEFT JOIN tasker.tasks t ON t.task_uuid = coalesce(i.made_task, i.task_uuid)
LEFT JOIN tasker.tasks_dlq n ON n.task_uuid = i.made_task AND n.resolution_status = 'pending' AND n.dlq_reason <> 'manual_dlq' AND n.recovered_at IS NULL
LEFT JOIN tasker.workflow_steps s ON s.task_uuid = coalesce(i.made_task, i.task_uuid) AND s.step_uuid = CASE WHEN i.made_task IS NULL THEN i.step_uuid ELSE n.step_uuid END
LEFT JOIN tasker.workers w ON w.worker_uuid = s.worker_uuid AND s.state = 'complete'
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = i.entry_uuid
WHERE CASE
    WHEN i.made_task IS NOT NULL THEN t.state IS NULL OR t.state IN ('complete', 'cancelled') OR n.dlq_entry_uuid IS NOT NULL OR t.state = 'error' AND (
    SELECT w.dlq_entry_uuid FROM tasker.tasks_dlq w
    WHERE w.task_uuid = t.task_uuid AND w.resolution_status = 'permanently_failed' AND w.resolved_at >= i.released_at
    LIMIT 1
) IS NOT NULL
    ELSE s.state IS NULL OR s.state NOT IN ('pending', 'enqueued') AND (s.state, i.state) <> ('in_progress', 'running')
       OR s.last_failure_at > coalesce(i.failed_at, i.released_at)
       OR s.state = 'pending' AND t.state = 'error' AND (
    SELECT w.dlq_entry_uuid FROM tasker.tasks_dlq w
    WHERE w.task_uuid = t.task_uuid AND w.resolution_status = 'permanently_failed' AND w.resolved_at >= i.released_at
    LIMIT 1
) IS NOT NULL
END
ORDER BY i.ordinal;

-- name: operationsInFlight
SELECT
o.operation_uuid AS uuid, o.act, o.arguments, o.selection, o.planned_by, o.reason, o.namespaces, o.state, o.items, o.capped, o.without_step,
o.overlapping, o.plan_digest, o.waves, o.wave, o.rate_per_minute, o.tolerate, o.tolerated_causes, o.stop_on_new_cause, extract(epoch FROM o.wave_timeout)::float8 AS wave_timeout,
coalesce(o.paused_for, '') AS paused_for, coalesce(o.paused_by, '') AS paused_by, o.paused_at, o.paused_details,
o.created_at, o.expires_at, coalesce(o.worker_at_least, '') AS worker_at_least, coalesce(o.started_by, '') AS started_by, o.started_at, o.ended_at, o.settled_at, '{}'::text[] AS item_states, '{}'::bigint[] AS item_counts, o.round, o.wave_since, o.causes,
coalesce(o.next_release_at <= clock_timestamp(), true) AS due, o.next_release_at AS next, clock_timestamp() AS now
    FROM tasker.operations o
    WHERE o.settled_at IS NULL AND o.state <> 'planned'
    ORDER BY o.created_at LIMIT $1;

-- name: failuresOfItems
-- If the item is a whole task, its step is the one to which the investigation refers.
SELECT coalesce(s.error ->> 'type', '') AS error_type, coalesce(s.error ->> 'message', '') AS error_message,
    coalesce(s.error ->> 'fingerprint', '') AS error_fingerprint
FROM tasker.operation_items i
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = i.entry_uuid
JOIN tasker.workflow_steps s ON s.task_uuid = i.task_uuid
    AND s.step_uuid = CASE WHEN i.step_uuid = '00000000-0000-0000-0000-000000000000' THEN d.step_uuid ELSE i.step_uuid END
WHERE i.operation_uuid = $1 AND i.ordinal > $2 AND i.ordinal <= $3 AND s.error IS NOT NULL;

-- name: liveVersions
SELECT DISTINCT w.version FROM tasker.workers w WHERE w.namespaces && $1::text[] AND w.left_at IS NULL AND w.draining_since IS NULL AND w.last_heartbeat_at >= now() - interval '2 hours'
AND w.last_heartbeat_at + 3 * w.heartbeat_interval >= clock_timestamp();

-- name: unverified
SELECT DISTINCT i.entry_uuid FROM tasker.operation_items i WHERE i.operation_uuid = $1 AND i.entry_uuid = ANY ($2) AND i.state <> 'verified';

-- name: templateSteps
-- An item of a map step counts as the map step.
SELECT DISTINCT t.template_uuid, split_part(s.name, '[', 1) AS name
FROM tasker.operation_items i
JOIN tasker.tasks t ON t.task_uuid = i.task_uuid
JOIN tasker.workflow_steps s ON s.task_uuid = i.task_uuid AND s.step_uuid = i.step_uuid
WHERE i.operation_uuid = $1
ORDER BY 1, 2
LIMIT $2;
