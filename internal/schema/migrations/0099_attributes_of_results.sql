-- Results of steps may be part of what their tasks are found by.
ALTER TABLE tasker.workflow_steps ADD attributes_at timestamptz;
COMMENT ON COLUMN tasker.workflow_steps.attributes_at IS 'Instant from which the attributes of the task are to be evaluated because of this step. Infinity: its result is part of them, and they are evaluated. Null: it is part of none.';
