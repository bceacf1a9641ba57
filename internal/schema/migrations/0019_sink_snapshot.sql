-- opened_in follows what a sink was given, no longer the instant at which it was opened:
-- while a transaction stays open, each look for new events read all since it began.

COMMENT ON COLUMN tasker.emission_sinks.opened_in IS 'What was visible in this snapshot is on the list of the sink, or is from before it was opened. It begins as that of the opening and follows each complete look for new events. Null: opened by an earlier version, which told of all since taken_before.';
