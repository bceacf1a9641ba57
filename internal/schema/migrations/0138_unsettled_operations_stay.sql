CREATE TRIGGER unsettled_operation_stays AFTER DELETE ON tasker.operations REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_removal_of_records();
