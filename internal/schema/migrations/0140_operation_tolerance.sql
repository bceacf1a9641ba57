-- Guards of operations tolerate a share of the steps of a wave, and causes that an operator names. Servers of the previous
-- version read stop_after, which is no longer written.
ALTER TABLE tasker.operations
    ALTER COLUMN stop_after SET DEFAULT 2,
    ADD COLUMN tolerate text,
    ADD COLUMN tolerated_causes text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN tasker.operations.stop_after IS 'Of operations that the previous version planned: see tolerate.';
COMMENT ON COLUMN tasker.operations.tolerate IS 'How many steps of a wave may fail: a number, a percentage, or all_but_one. Null: one less than stop_after.';
COMMENT ON COLUMN tasker.operations.tolerated_causes IS 'Fingerprints of failures that the guards do not count, named by the operators who resumed the operation.';
-- An operation may answer external steps.
ALTER TABLE tasker.operations
    DROP CONSTRAINT operation_act_is_known,
    ADD CONSTRAINT operation_act_is_known CHECK (act IN (
        'reset_for_retry', 'resolve_manually', 'complete_manually', 'answer', 'cancel', 'compensate', 'recreate', 'end_investigation'
    )) NOT VALID;
