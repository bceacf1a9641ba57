-- A move that an operator made to a step as an item of an operation says so.
ALTER TABLE tasker.step_history ADD COLUMN operation_uuid uuid;
COMMENT ON COLUMN tasker.step_history.operation_uuid IS 'The operation whose item the move is; null when it was made by hand, or by nobody.';
