-- tasker:no-transaction
ALTER TABLE tasker.workflow_steps VALIDATE CONSTRAINT step_item_is_whole;
