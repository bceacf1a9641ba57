-- tasker:no-transaction
INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes)
SELECT s.namespace, s.handler, s.priority, s.state_since, s.step_uuid, s.task_uuid, s.expires_at, s.queue_ttl_ms, s.inputs_bytes
FROM tasker.workflow_steps s
WHERE s.state = 'enqueued'
ON CONFLICT DO NOTHING;
