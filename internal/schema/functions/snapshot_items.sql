-- snapshot_items returns the items of map steps that the snapshot of a task shows one by
-- one: the first 100 that have failed. All others are only counted. Null: the task has no
-- items.
CREATE OR REPLACE FUNCTION tasker.snapshot_items(p_task uuid) RETURNS uuid[]
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM tasker.workflow_steps i WHERE i.task_uuid = p_task AND i.map_step_uuid IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(
        SELECT i.step_uuid
        FROM tasker.workflow_steps i
        WHERE i.task_uuid = p_task AND i.map_step_uuid IS NOT NULL AND i.state = 'error'
        ORDER BY i.next_retry_at IS NOT NULL, i.map_step_uuid, i.item_ordinal
        LIMIT 100
    );
END
$$;
COMMENT ON FUNCTION tasker.snapshot_items(uuid) IS 'The items of map steps that the snapshot of a task shows one by one: the first 100 that have failed. Null: it has no items.';
