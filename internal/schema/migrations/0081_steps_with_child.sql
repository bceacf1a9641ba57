-- Steps of type child wait for the task that they started.
ALTER TABLE tasker.workflow_steps
    ADD COLUMN child_task_uuid uuid,
    DROP CONSTRAINT step_settings_are_right,
    ADD CONSTRAINT step_settings_are_right CHECK (
        step_type IN ('standard', 'external', 'wait', 'child') AND backoff IN ('exponential', 'linear', 'constant') AND coalesce(queue_ttl_ms, 1) > 0
    ) NOT VALID,
    ADD CONSTRAINT child_step_has_its_task CHECK (step_type <> 'child' OR decided_at IS NULL OR child_task_uuid IS NOT NULL) NOT VALID;
COMMENT ON COLUMN tasker.workflow_steps.child_task_uuid IS 'The task that a step of type child started last.';

-- A child of which the step does not want to know any more is cancelled. One that was given up stays as it is.
CREATE FUNCTION tasker.leave_child_task() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO tasker.child_signals (kind, child_uuid, parent_task_uuid, parent_step_uuid)
    SELECT 'cancel', c.task_uuid, c.parent_task_uuid, c.parent_step_uuid
    FROM tasker.tasks c
    WHERE c.parent_task_uuid = NEW.task_uuid AND c.parent_step_uuid = NEW.step_uuid AND c.state NOT IN ('complete', 'cancelled')
      AND NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed')
    ORDER BY c.task_uuid
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.leave_child_task() IS 'Leaves word that the child task of a step is to be cancelled, because the step does not wait for it any more.';
CREATE TRIGGER child_task_is_left
    AFTER UPDATE ON tasker.workflow_steps
    FOR EACH ROW WHEN (OLD.child_task_uuid IS NOT NULL AND OLD.state = 'pending' AND NEW.state <> 'pending')
    EXECUTE FUNCTION tasker.leave_child_task();
