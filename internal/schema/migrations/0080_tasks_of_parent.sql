-- tasker:no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_of_parent ON tasker.tasks (parent_task_uuid, task_uuid DESC) WHERE parent_task_uuid IS NOT NULL;
