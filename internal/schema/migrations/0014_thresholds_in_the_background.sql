-- Changed thresholds are applied to the tasks that stand in their state already by a
-- loop, in batches, and not by the server that starts with them.

ALTER TABLE tasker.staleness_thresholds ADD COLUMN applied_at timestamptz;
COMMENT ON COLUMN tasker.staleness_thresholds.applied_at IS 'The updated_at whose thresholds every watched task has. Another one: a server is about to apply them.';
UPDATE tasker.staleness_thresholds SET applied_at = updated_at WHERE only_row;
