-- tasker:no-transaction
ALTER TABLE tasker.workflow_steps VALIDATE CONSTRAINT step_settings_are_those_of_its_type;
