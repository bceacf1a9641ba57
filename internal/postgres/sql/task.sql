-- name: selectTask
-- The counts do not include items of map steps.
SELECT t.context, nullif(ARRAY(
    SELECT a.name || ':' || coalesce(
        a.text_value, a.number_value::text, to_char(a.time_value AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
    )
    FROM tasker.task_attributes a
    WHERE a.task_uuid = t.task_uuid AND a.name NOT IN ('tag', 'correlation_id', 'initiator', 'source_system')
    ORDER BY a.name
), '{}') AS attributes,
    t.task_uuid AS uuid, t.template_uuid, t.namespace, t.name, t.version, t.state, t.state_since, coalesce(t.phase, '') AS phase,
    coalesce(t.outcome, '') AS outcome, t.priority, t.initiator, t.source_system, t.reason, t.tags, t.correlation_id,
    t.parent_correlation_id, coalesce(t.idempotency_key, '') AS idempotency_key, t.recreated_from, t.parent_task_uuid,
    t.parent_step_uuid, t.start_at, t.created_at, t.updated_at, t.completed_at, t.options, (
        SELECT jsonb_build_object(
            'due_at', q.due_at, 'warn_at', q.warn_at, 'overdue', CASE WHEN q.investigate THEN 'investigate' ELSE 'tell' END,
            'source', q.source, 'set_by', q.set_by, 'warned_at', q.warned_at, 'announced_at', q.announced_at,
            'state', CASE
                WHEN CASE WHEN t.state = 'complete' THEN t.completed_at END <= q.due_at THEN 'met'
                WHEN CASE WHEN t.state = 'complete' THEN t.completed_at END > q.due_at THEN 'missed'
                WHEN q.ended_at IS NOT NULL THEN 'ended'
                WHEN q.due_at <= now() THEN 'overdue'
                WHEN q.warn_at <= now() THEN 'soon'
                ELSE 'ahead'
            END
        )
        FROM tasker.deadlines q
        WHERE q.task_uuid = t.task_uuid AND q.step_uuid = '00000000-0000-0000-0000-000000000000'
    ) AS due,
    t.ends_at AS max_duration_ends_at, n.total, n.pending, n.in_progress, n.completed, n.failed, n.ready, n.cancelled, n.skipped,
    d.dlq_entry_uuid IS NOT NULL AS dead_lettered, d.dlq_timestamp AS dead_lettered_at,
    coalesce(d.dlq_reason::text, '') AS dead_letter_reason, d.dlq_entry_uuid,
    coalesce(d.resolution_status::text, '') AS dead_letter_status, d.recovered_at AS dead_letter_recovered_at
FROM tasker.tasks t
CROSS JOIN LATERAL (
    SELECT
        count(*) AS total,
        count(*) FILTER (WHERE s.state = 'pending') AS pending,
        count(*) FILTER (WHERE s.state IN ('enqueued', 'in_progress', 'enqueued_for_orchestration')) AS in_progress,
        count(*) FILTER (WHERE s.state IN ('complete', 'resolved_manually')) AS completed,
        count(*) FILTER (WHERE s.state = 'error') AS failed,
        count(*) FILTER (WHERE s.state = 'enqueued') AS ready,
        count(*) FILTER (WHERE s.state = 'cancelled') AS cancelled,
        count(*) FILTER (WHERE s.state = 'skipped') AS skipped
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = t.task_uuid AND s.map_step_uuid IS NULL
) n
LEFT JOIN LATERAL (
    SELECT q.dlq_entry_uuid, q.dlq_timestamp, q.dlq_reason, q.resolution_status, q.recovered_at
    FROM tasker.tasks_dlq q
    WHERE q.task_uuid = t.task_uuid AND q.resolution_status IN ('pending', 'permanently_failed')
    ORDER BY q.dlq_timestamp DESC
    LIMIT 1
) d ON true
WHERE t.task_uuid = $1;

-- name: selectTasks
-- selectTask for many tasks, in the order of $1, without contexts and attributes.
SELECT NULL::jsonb AS context, NULL::text[] AS attributes,
    t.task_uuid AS uuid, t.template_uuid, t.namespace, t.name, t.version, t.state, t.state_since, coalesce(t.phase, '') AS phase,
    coalesce(t.outcome, '') AS outcome, t.priority, t.initiator, t.source_system, t.reason, t.tags, t.correlation_id,
    t.parent_correlation_id, coalesce(t.idempotency_key, '') AS idempotency_key, t.recreated_from, t.parent_task_uuid,
    t.parent_step_uuid, t.start_at, t.created_at, t.updated_at, t.completed_at, t.options, (
        SELECT jsonb_build_object(
            'due_at', q.due_at, 'warn_at', q.warn_at, 'overdue', CASE WHEN q.investigate THEN 'investigate' ELSE 'tell' END,
            'source', q.source, 'set_by', q.set_by, 'warned_at', q.warned_at, 'announced_at', q.announced_at,
            'state', CASE
                WHEN CASE WHEN t.state = 'complete' THEN t.completed_at END <= q.due_at THEN 'met'
                WHEN CASE WHEN t.state = 'complete' THEN t.completed_at END > q.due_at THEN 'missed'
                WHEN q.ended_at IS NOT NULL THEN 'ended'
                WHEN q.due_at <= now() THEN 'overdue'
                WHEN q.warn_at <= now() THEN 'soon'
                ELSE 'ahead'
            END
        )
        FROM tasker.deadlines q
        WHERE q.task_uuid = t.task_uuid AND q.step_uuid = '00000000-0000-0000-0000-000000000000'
    ) AS due,
    t.ends_at AS max_duration_ends_at, n.total, n.pending, n.in_progress, n.completed, n.failed, n.ready, n.cancelled, n.skipped,
    d.dlq_entry_uuid IS NOT NULL AS dead_lettered, d.dlq_timestamp AS dead_lettered_at,
    coalesce(d.dlq_reason::text, '') AS dead_letter_reason, d.dlq_entry_uuid,
    coalesce(d.resolution_status::text, '') AS dead_letter_status, d.recovered_at AS dead_letter_recovered_at
FROM unnest($1::uuid[]) WITH ORDINALITY AS u (task_uuid, place)
JOIN tasker.tasks t ON t.task_uuid = u.task_uuid
CROSS JOIN LATERAL (
    SELECT
        count(*) AS total,
        count(*) FILTER (WHERE s.state = 'pending') AS pending,
        count(*) FILTER (WHERE s.state IN ('enqueued', 'in_progress', 'enqueued_for_orchestration')) AS in_progress,
        count(*) FILTER (WHERE s.state IN ('complete', 'resolved_manually')) AS completed,
        count(*) FILTER (WHERE s.state = 'error') AS failed,
        count(*) FILTER (WHERE s.state = 'enqueued') AS ready,
        count(*) FILTER (WHERE s.state = 'cancelled') AS cancelled,
        count(*) FILTER (WHERE s.state = 'skipped') AS skipped
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = t.task_uuid AND s.map_step_uuid IS NULL
) n
LEFT JOIN LATERAL (
    SELECT q.dlq_entry_uuid, q.dlq_timestamp, q.dlq_reason, q.resolution_status, q.recovered_at
    FROM tasker.tasks_dlq q
    WHERE q.task_uuid = t.task_uuid AND q.resolution_status IN ('pending', 'permanently_failed')
    ORDER BY q.dlq_timestamp DESC
    LIMIT 1
) d ON true
ORDER BY u.place;

-- name: settledTasks
-- Returns the tasks that have ended, have an investigation that is open or permanently failed, or
-- neither exist nor are requested.
SELECT u.task_uuid
FROM unnest($1::uuid[]) AS u (task_uuid)
LEFT JOIN LATERAL (
    SELECT t.state FROM tasker.tasks t WHERE t.task_uuid = u.task_uuid OFFSET 0
) t ON true
WHERE t.state IS NULL AND NOT EXISTS (SELECT FROM tasker.task_requests r WHERE r.task_uuid = u.task_uuid AND r.refused_at IS NULL)
   OR t.state IN ('complete', 'cancelled', 'resolved_manually')
   OR EXISTS (SELECT FROM tasker.tasks_dlq q WHERE q.task_uuid = u.task_uuid AND q.resolution_status IN ('pending', 'permanently_failed'));

-- name: keyHolders
SELECT t.namespace, t.idempotency_key AS key, t.task_uuid, t.request_digest
FROM unnest($1::text[], $2::text[]) AS u (namespace, key)
CROSS JOIN LATERAL (
    SELECT * FROM tasker.tasks t WHERE t.namespace = u.namespace AND t.idempotency_key = u.key OFFSET 0
) t;
