-- A step may take several places of a limit: as many as its weight, and all there are if it has more.
-- The previous version gives each step one.
ALTER TABLE tasker.task_limits ADD COLUMN weight integer NOT NULL DEFAULT 1;

COMMENT ON COLUMN tasker.task_limits.weight IS 'How many places the step takes.';
