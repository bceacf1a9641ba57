-- The step that started a task hears that it was given up.
CREATE FUNCTION tasker.follow_given_up_child() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO tasker.child_signals (kind, child_uuid, parent_task_uuid, parent_step_uuid)
    SELECT 'ended', t.task_uuid, t.parent_task_uuid, t.parent_step_uuid
    FROM tasker.tasks t
    WHERE t.task_uuid = NEW.task_uuid AND t.parent_step_uuid IS NOT NULL
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.follow_given_up_child() IS 'Leaves word that a child task was given up.';
CREATE TRIGGER entry_gave_up_child
    AFTER UPDATE OF resolution_status ON tasker.tasks_dlq
    FOR EACH ROW WHEN (OLD.resolution_status = 'pending' AND NEW.resolution_status = 'permanently_failed')
    EXECUTE FUNCTION tasker.follow_given_up_child();
