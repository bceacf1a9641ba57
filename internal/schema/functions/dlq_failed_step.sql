-- dlq_failed_step returns what an entry keeps of the step that failed: its name, and
-- its error without ids, numbers and secrets. No row when there is no such step.
CREATE OR REPLACE FUNCTION tasker.dlq_failed_step(p_task uuid, p_step uuid)
RETURNS TABLE (step_name text, error_pattern text)
LANGUAGE sql STABLE
AS $$
    SELECT w.name, tasker.error_pattern(tasker.redact_error(w.error) ->> 'message')
    FROM tasker.workflow_steps w
    WHERE w.task_uuid = p_task AND w.step_uuid = p_step
    OFFSET 0 -- the error is searched for secrets once
$$;
COMMENT ON FUNCTION tasker.dlq_failed_step(uuid, uuid) IS 'Name and error pattern of a step, as an investigation keeps them.';
