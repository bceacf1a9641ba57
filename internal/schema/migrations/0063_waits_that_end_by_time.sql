-- tasker:no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS steps_by_wait ON tasker.workflow_steps (wait_until, task_uuid, step_uuid) WHERE wait_until IS NOT NULL;
