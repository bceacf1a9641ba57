CREATE TRIGGER history_of_investigated_task_stays AFTER DELETE ON tasker.task_history REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_removal_of_records();
