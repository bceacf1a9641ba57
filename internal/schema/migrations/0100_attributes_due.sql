-- tasker:no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS steps_with_attributes_due ON tasker.workflow_steps (attributes_at, task_uuid, step_uuid) WHERE attributes_at < 'infinity';
