-- tasker:no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_by_phase ON tasker.tasks (phase, task_uuid DESC) WHERE phase IS NOT NULL;
