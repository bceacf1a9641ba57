-- Where a template has its steps ordered by when they are due, the row of a step in the queue says so.
ALTER TABLE tasker.ready_steps ADD COLUMN due_at timestamptz;
COMMENT ON COLUMN tasker.ready_steps.due_at IS 'By when the step or its task is due, where its template has its steps ordered by that. Null: it has not.';
