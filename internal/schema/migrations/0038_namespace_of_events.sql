-- The events of one namespace are found without going through those of all others.
ALTER TABLE tasker.outbox ADD COLUMN namespace text;
COMMENT ON COLUMN tasker.outbox.namespace IS 'The namespace of the task.';

CREATE FUNCTION tasker.note_namespace() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    NEW.namespace := (SELECT t.namespace FROM tasker.tasks t WHERE t.task_uuid = NEW.task_uuid);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION tasker.note_namespace() IS 'Keeps the namespace of its task in a row.';
CREATE TRIGGER event_namespace_is_noted BEFORE INSERT ON tasker.outbox
    FOR EACH ROW WHEN (NEW.namespace IS NULL) EXECUTE FUNCTION tasker.note_namespace();
