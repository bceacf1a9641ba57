-- What a sink is told of begins with an exact instant: what was not visible when the
-- sink was opened. A transaction that stays open for long, in any database of the
-- server, holds taken_before back, so that alone would tell a new sink of old events.

ALTER TABLE tasker.emission_sinks ADD COLUMN opened_in pg_snapshot;
ALTER TABLE tasker.emission_sinks ALTER COLUMN opened_in SET DEFAULT pg_current_snapshot();
COMMENT ON COLUMN tasker.emission_sinks.opened_in IS 'The sink is told of events that were not visible in this snapshot. Null: opened by an earlier version, which told of all since taken_before.';
