CREATE TRIGGER steps_of_investigated_task_stay AFTER DELETE ON tasker.workflow_steps REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_removal_of_records();
