-- tasker:no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS steps_with_kept_report ON tasker.workflow_steps (task_uuid, step_uuid) WHERE kept_report IS NOT NULL;
