-- A step that waits because workers are busy does not fail: its limit is moved on, in the row that claims and the sweep read.
ALTER TABLE tasker.ready_steps ADD COLUMN limit_passed_at timestamptz;
COMMENT ON COLUMN tasker.ready_steps.limit_passed_at IS 'When the step had waited for a worker too long, and did not fail because its queue is saturated: expires_at was moved on. Null: it was not.';
