-- An investigation that gives a task up frees its unique key.
CREATE FUNCTION tasker.free_unique_key() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM tasker.unique_tasks x WHERE x.task_uuid = NEW.task_uuid;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.free_unique_key() IS 'Frees the unique key of a task that was given up.';
CREATE TRIGGER entry_frees_unique_key
    AFTER UPDATE OF resolution_status ON tasker.tasks_dlq
    FOR EACH ROW WHEN (OLD.resolution_status = 'pending' AND NEW.resolution_status = 'permanently_failed')
    EXECUTE FUNCTION tasker.free_unique_key();
