-- The role of a server removes old tasks and operations, and not the records of investigated tasks or of operations that
-- have not settled.

CREATE FUNCTION tasker.refuse_removal_of_records() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    _record uuid;
BEGIN
    CASE TG_TABLE_NAME
        WHEN 'workflow_steps' THEN -- another version may remove steps that never began
            SELECT r.task_uuid INTO _record FROM removed r JOIN tasker.tasks_dlq d ON d.task_uuid = r.task_uuid WHERE r.state <> 'pending' LIMIT 1;
        WHEN 'operation_items' THEN
            SELECT r.operation_uuid INTO _record FROM removed r JOIN tasker.operations o ON o.operation_uuid = r.operation_uuid WHERE o.settled_at IS NULL LIMIT 1;
        WHEN 'operations' THEN
            SELECT r.operation_uuid INTO _record FROM removed r WHERE r.settled_at IS NULL LIMIT 1;
        ELSE
            SELECT r.task_uuid INTO _record FROM removed r JOIN tasker.tasks_dlq d ON d.task_uuid = r.task_uuid LIMIT 1;
    END CASE;
    IF _record IS NOT NULL THEN
        RAISE EXCEPTION 'rows of % are not removed: % is investigated or has not settled', TG_TABLE_NAME, _record
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.refuse_removal_of_records() IS 'Refuses to remove steps and histories of investigated tasks, and operations that have not settled.';

CREATE TRIGGER history_of_investigated_task_stays AFTER DELETE ON tasker.step_history REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_removal_of_records();
