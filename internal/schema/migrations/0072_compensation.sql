-- A task that is given up can undo what its steps have done.
ALTER TABLE tasker.tasks ADD COLUMN phase text, ADD COLUMN outcome text;
COMMENT ON COLUMN tasker.tasks.phase IS 'compensating: the open task undoes what its steps have done. Null: it goes forward, or has ended.';
COMMENT ON COLUMN tasker.tasks.outcome IS 'Of a cancelled task that was to undo what it had done: compensated, compensation_stopped or nothing_to_compensate.';
