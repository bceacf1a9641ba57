-- Keeps tasker.ready_steps and tasker.claims in step with what a test writes into
-- tasker.workflow_steps by SQL, in sessions that set tasker_test.follow. Servers keep both tables
-- themselves.
CREATE SCHEMA tasker_test;
CREATE FUNCTION tasker_test.follow_step() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.state = 'enqueued' THEN
        DELETE FROM tasker.ready_steps r
        WHERE r.namespace = OLD.namespace AND r.handler = OLD.handler AND r.priority = OLD.priority
          AND r.state_since = OLD.state_since AND r.step_uuid = OLD.step_uuid;
    END IF;
    IF NEW.state = 'enqueued' THEN
        INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes)
        VALUES (NEW.namespace, NEW.handler, NEW.priority, NEW.state_since, NEW.step_uuid, NEW.task_uuid, NEW.expires_at, NEW.queue_ttl_ms, NEW.inputs_bytes)
        ON CONFLICT DO NOTHING;
    ELSIF NEW.state = 'in_progress' AND (TG_OP = 'INSERT' OR OLD.state <> 'in_progress' OR NEW.lease_expires_at < OLD.lease_expires_at) THEN
        INSERT INTO tasker.claims (look_at, claimed_at, tasks, steps)
        VALUES (NEW.lease_expires_at, coalesce(NEW.last_attempted_at, NEW.state_since), ARRAY[NEW.task_uuid], ARRAY[NEW.step_uuid]);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER follow_inserted_step AFTER INSERT ON tasker.workflow_steps
    FOR EACH ROW WHEN (NEW.state IN ('enqueued', 'in_progress') AND current_setting('tasker_test.follow', true) = 'on')
    EXECUTE FUNCTION tasker_test.follow_step();
CREATE TRIGGER follow_updated_step AFTER UPDATE ON tasker.workflow_steps
    FOR EACH ROW WHEN ((OLD.state = 'enqueued' OR NEW.state IN ('enqueued', 'in_progress')) AND current_setting('tasker_test.follow', true) = 'on')
    EXECUTE FUNCTION tasker_test.follow_step();
