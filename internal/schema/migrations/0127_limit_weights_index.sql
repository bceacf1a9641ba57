-- tasker:no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS task_limits_with_weight ON tasker.task_limits (task_uuid) WHERE weight > 1;
