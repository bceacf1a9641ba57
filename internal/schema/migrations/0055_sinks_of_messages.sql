-- Sinks that get messages only are told of no investigation, also not again.
ALTER TABLE tasker.emission_sinks ADD COLUMN events boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN tasker.emission_sinks.events IS 'It is told of what becomes of investigations, and not of messages only.';
