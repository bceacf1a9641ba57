-- Whoever asks for it is told how the compensation of a task has ended, also where a server of the previous version ends it.
CREATE FUNCTION tasker.tell_of_compensation() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO tasker.messages (topic, subject_kind, subject_id, namespaces, data)
    VALUES ('task.compensated', 'task', NEW.task_uuid, ARRAY[NEW.namespace], jsonb_build_object(
        'summary', format('%s: the compensation of a task of %s has ended: %s', NEW.namespace, NEW.name, replace(NEW.outcome, '_', ' ')),
        'severity', CASE NEW.outcome WHEN 'compensation_stopped' THEN 'medium' ELSE 'low' END,
        'namespace', NEW.namespace, 'template', NEW.name, 'task', NEW.task_uuid, 'state', NEW.outcome,
        'began_at', NEW.state_since, 'path', '/ui/tasks/' || NEW.task_uuid,
        'entries', 0, 'waiting', 0, 'proving', 0, 'failed_again', 0, 'recovered', 0, 'cases', 0, 'cases_open', 0));
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.tell_of_compensation() IS 'Puts a message on the list that says how the compensation of a task has ended.';
CREATE TRIGGER compensation_is_told
    AFTER UPDATE OF outcome ON tasker.tasks
    FOR EACH ROW WHEN (OLD.outcome IS NULL AND NEW.outcome IS NOT NULL)
    EXECUTE FUNCTION tasker.tell_of_compensation();
