-- A step that a hold has let go stays free of it while a limit keeps it from claims.
ALTER TABLE tasker.held_steps ADD COLUMN released_by uuid;
COMMENT ON COLUMN tasker.held_steps.released_by IS 'The hold that let it go before a limit kept it from claims.';
