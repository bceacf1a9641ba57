-- name: tasksBelow
-- Reading one child more than the limit shows whether there are more.
SELECT c.task_uuid, p.task_uuid AS parent_uuid
FROM unnest($1::uuid[]) WITH ORDINALITY AS p (task_uuid, place)
CROSS JOIN LATERAL (
    SELECT t.task_uuid, t.state IN ('complete', 'cancelled') AS over
    FROM tasker.tasks t
    WHERE t.parent_task_uuid = p.task_uuid
    ORDER BY 2, 1 DESC
    LIMIT $2
) c
ORDER BY p.place, c.over, c.task_uuid DESC;

-- name: treeTasks
SELECT NULL::jsonb AS context, NULL::text[] AS attributes, coalesce(t.depth, 0) AS depth, coalesce(s.name, '') AS step_name, coalesce(s.child_task_uuid = t.task_uuid, false) AS current,
    coalesce(s.child_task_uuid = t.task_uuid AND s.state = 'pending' AND u.state NOT IN ('complete', 'cancelled'), false) AS waited_for,
    t.task_uuid AS uuid, t.template_uuid, t.namespace, t.name, t.version, t.state, t.state_since, coalesce(t.phase, '') AS phase, coalesce(t.outcome, '') AS outcome, t.priority,
    t.initiator, t.source_system, t.reason, t.tags, t.correlation_id, t.parent_correlation_id,
    coalesce(t.idempotency_key, '') AS idempotency_key, t.recreated_from, t.parent_task_uuid, t.parent_step_uuid, t.start_at, t.created_at, t.updated_at, t.completed_at, t.options, (
        SELECT jsonb_build_object('due_at', q.due_at, 'warn_at', q.warn_at, 'overdue', CASE WHEN q.investigate THEN 'investigate' ELSE 'tell' END, 'source', q.source,
            'set_by', q.set_by, 'warned_at', q.warned_at, 'announced_at', q.announced_at, 'state', CASE
                WHEN CASE WHEN t.state = 'complete' THEN t.completed_at END <= q.due_at THEN 'met'
                WHEN CASE WHEN t.state = 'complete' THEN t.completed_at END > q.due_at THEN 'missed'
                WHEN q.ended_at IS NOT NULL THEN 'ended'
                WHEN q.due_at <= now() THEN 'overdue'
                WHEN q.warn_at <= now() THEN 'soon'
                ELSE 'ahead' END)
        FROM tasker.deadlines q
        WHERE q.task_uuid = t.task_uuid AND q.step_uuid = '00000000-0000-0000-0000-000000000000'
    ) AS due, t.ends_at AS max_duration_ends_at,
    n.total, n.pending, n.in_progress, n.completed, n.failed, n.ready, n.cancelled, n.skipped,
    d.dlq_entry_uuid IS NOT NULL AS dead_lettered, d.dlq_timestamp AS dead_lettered_at,
    coalesce(d.dlq_reason::text, '') AS dead_letter_reason, d.dlq_entry_uuid,
    coalesce(d.resolution_status::text, '') AS dead_letter_status, d.recovered_at AS dead_letter_recovered_at
FROM unnest($1::uuid[]) WITH ORDINALITY AS l (task_uuid, place)
JOIN tasker.tasks t ON t.task_uuid = l.task_uuid
LEFT JOIN tasker.workflow_steps s ON s.task_uuid = t.parent_task_uuid AND s.step_uuid = t.parent_step_uuid
LEFT JOIN tasker.tasks u ON u.task_uuid = t.parent_task_uuid
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
ORDER BY l.place;
