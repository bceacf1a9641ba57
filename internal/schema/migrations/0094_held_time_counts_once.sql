-- Of a task whose steps are held at the same time, the time counts once.
ALTER TABLE tasker.held_steps ADD COLUMN counted_until timestamptz;
COMMENT ON COLUMN tasker.held_steps.counted_until IS 'Until when the time for which its task is held was added to what the task may take as a whole. Null: from held_at on it was not.';
