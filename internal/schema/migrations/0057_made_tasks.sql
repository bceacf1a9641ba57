-- An operation may make new tasks in the place of those that it writes off.

ALTER TABLE tasker.operation_items ADD COLUMN made_task uuid;
COMMENT ON COLUMN tasker.operation_items.made_task IS 'The task that was made in the place of task_uuid, of the act recreate. The item waits for it.';
