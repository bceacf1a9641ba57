ALTER TABLE tasker.limit_slots ADD COLUMN weight integer NOT NULL DEFAULT 1;

COMMENT ON COLUMN tasker.limit_slots.weight IS 'How many places the step has taken.';
