-- tasker:no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS steps_to_decide ON tasker.workflow_steps (decide_at, task_uuid, step_uuid) WHERE decide_at IS NOT NULL;
