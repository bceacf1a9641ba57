-- tasker:no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS steps_by_reminder ON tasker.workflow_steps (remind_at, task_uuid, step_uuid) WHERE remind_at IS NOT NULL;
