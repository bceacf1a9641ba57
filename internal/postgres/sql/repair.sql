-- name: insert
WITH old AS (
    DELETE FROM tasker.operator_requests WHERE request_key IN (
        SELECT request_key FROM tasker.operator_requests
        WHERE created_at < clock_timestamp() - interval '7 days' ORDER BY created_at LIMIT 20 FOR UPDATE SKIP LOCKED
    )
)
INSERT INTO tasker.operator_requests (request_key, action, digest) VALUES ($1, $2, $3)
ON CONFLICT (request_key) DO NOTHING;

-- name: requestDigest
SELECT digest FROM tasker.operator_requests WHERE request_key = $1;

-- name: recordRepairs
-- If the task has no open investigation, the repair is recorded only in the audit log.
WITH repair AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
        WITH ORDINALITY AS r (task_uuid, event, actor, notes, data, action, subject, place)
),
history AS (
    INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, metadata)
    SELECT d.dlq_entry_uuid, r.event, r.actor, 'pending', 'pending', r.notes, r.data::jsonb
    FROM repair r
    JOIN tasker.tasks_dlq d ON d.task_uuid = r.task_uuid AND d.resolution_status = 'pending'
    ORDER BY r.place
)
INSERT INTO tasker.audit_events (actor, action, subject, data)
SELECT r.actor, r.action, r.subject, r.data::jsonb FROM repair r ORDER BY r.place;

-- name: lockTargets
SELECT s.task_uuid, s.step_uuid, s.name, s.namespace, s.handler, t.state AS task, s.state AS step, s.fence, s.is_decision IS NOT NULL AS is_decision,
    s.step_type = 'child' AS is_child, s.child_task_uuid AS child, t.template_uuid,
    CASE WHEN s.items_total IS NOT NULL AND s.state = 'pending' THEN s.parents_open ELSE 0 END AS open_items,
    t.phase IS NULL AND EXISTS (
        SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = s.task_uuid AND d.resolution_status = 'permanently_failed'
    ) AS written_off
FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
ORDER BY s.task_uuid, s.step_uuid
FOR NO KEY UPDATE OF s;

-- name: repairedSteps
SELECT s.step_uuid, t.template_uuid, t.priority, t.correlation_id, t.created_at, s.error, s.item
FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid;
