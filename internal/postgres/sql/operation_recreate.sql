-- name: selectRecreateTargets
SELECT t.task_uuid, t.state, coalesce(d.resolution_status = 'pending', false) AS open,
    (SELECT count(*) FROM tasker.workflow_steps s WHERE s.task_uuid = t.task_uuid AND (s.state IN ('enqueued', 'in_progress', 'enqueued_for_orchestration')
        OR s.state = 'pending' AND num_nonnulls(s.decide_at, s.wait_until) > 0)) AS held,
    EXISTS (SELECT FROM tasker.tasks_dlq w WHERE w.task_uuid = t.task_uuid AND w.resolution_status = 'permanently_failed') AS written_off,
    t.namespace, t.name, t.context, t.initiator, t.source_system, t.reason, t.priority, t.tags, t.correlation_id, t.parent_correlation_id
FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, entry_uuid)
JOIN tasker.tasks t ON t.task_uuid = u.task_uuid
LEFT JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = u.entry_uuid;
