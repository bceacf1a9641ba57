-- tasker:no-transaction
ALTER TABLE tasker.workflow_steps VALIDATE CONSTRAINT step_has_what_its_state_needs;
