-- tasker:no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS items_in_error ON tasker.workflow_steps (task_uuid, map_step_uuid, item_ordinal) WHERE map_step_uuid IS NOT NULL AND state = 'error';
