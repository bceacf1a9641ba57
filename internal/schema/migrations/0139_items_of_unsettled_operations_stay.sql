CREATE TRIGGER items_of_unsettled_operation_stay AFTER DELETE ON tasker.operation_items REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_removal_of_records();
