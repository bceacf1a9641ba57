-- An external step that has a timeout waits until an instant.
ALTER TABLE tasker.workflow_steps ADD COLUMN wait_until timestamptz;
COMMENT ON COLUMN tasker.workflow_steps.wait_until IS 'When the wait of a pending external step ends by the clock. Null: it does not wait yet, or without end.';
