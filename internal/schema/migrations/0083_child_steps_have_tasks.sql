-- tasker:no-transaction
ALTER TABLE tasker.workflow_steps VALIDATE CONSTRAINT child_step_has_its_task;
