-- The result of a decision names which of the steps behind it go on.
ALTER TABLE tasker.workflow_steps ADD COLUMN is_decision boolean;
COMMENT ON COLUMN tasker.workflow_steps.is_decision IS 'True of a step of type decision: its result names which of its direct dependents go on. Null of all others.';
