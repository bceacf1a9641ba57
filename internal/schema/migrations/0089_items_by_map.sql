-- tasker:no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS steps_by_map ON tasker.workflow_steps (task_uuid, map_step_uuid, item_ordinal) WHERE map_step_uuid IS NOT NULL;
