-- A step that a limit keeps from claims is put aside as one that a hold keeps from them.
ALTER TABLE tasker.held_steps
    ALTER COLUMN hold_uuid DROP NOT NULL,
    ADD COLUMN limit_key_id bigint;
COMMENT ON TABLE tasker.held_steps IS 'The enqueued steps that a hold or a limit keeps from claims, with their rows of tasker.ready_steps. If the step is elsewhere by now the row is outdated, and goes when the hold ends, or with the next claim.';
COMMENT ON COLUMN tasker.held_steps.hold_uuid IS 'The hold. Null: a limit keeps it.';
COMMENT ON COLUMN tasker.held_steps.limit_key_id IS 'The key of the limit. Null: a hold keeps it.';
