-- tasker:no-transaction
ALTER TABLE tasker.workflow_steps VALIDATE CONSTRAINT step_parents_open_counts;
