-- An operation may cancel tasks with compensation.
ALTER TABLE tasker.operations
    DROP CONSTRAINT operation_act_is_known,
    ADD CONSTRAINT operation_act_is_known CHECK (act IN (
        'reset_for_retry', 'resolve_manually', 'complete_manually', 'cancel', 'compensate', 'recreate', 'end_investigation'
    )) NOT VALID;
COMMENT ON COLUMN tasker.operation_items.made_task IS 'The task that the item waits for: of the act recreate that which was made in the place of task_uuid, of the act compensate task_uuid itself.';
