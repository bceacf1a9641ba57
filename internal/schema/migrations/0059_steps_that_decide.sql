-- Steps with a condition, or behind one, are decided: they run, or they are skipped.
ALTER TABLE tasker.workflow_steps
    ADD COLUMN join_rule   text,
    ADD COLUMN decide_at   timestamptz,
    ADD COLUMN decided_at  timestamptz,
    ADD COLUMN skip_reason text,
    DROP CONSTRAINT step_has_what_its_state_needs,
    ADD CONSTRAINT step_has_what_its_state_needs CHECK (
        CASE state
            WHEN 'complete' THEN num_nonnulls(expires_at, lease_expires_at, kept_report, next_retry_at, awaits_worker_since) = 0
            WHEN 'in_progress' THEN lease_expires_at IS NOT NULL AND num_nonnulls(expires_at, kept_report, next_retry_at, awaits_worker_since) = 0
            WHEN 'enqueued' THEN expires_at IS NOT NULL AND num_nonnulls(lease_expires_at, kept_report, next_retry_at, awaits_worker_since) = 0
                AND (join_rule IS NULL OR decided_at IS NOT NULL)
            WHEN 'error' THEN num_nonnulls(expires_at, lease_expires_at, kept_report) = 0 AND num_nonnulls(next_retry_at, awaits_worker_since) <= 1
            WHEN 'enqueued_for_orchestration' THEN kept_report IS NOT NULL AND num_nonnulls(expires_at, lease_expires_at, next_retry_at, awaits_worker_since) = 0
            WHEN 'pending' THEN num_nonnulls(expires_at, lease_expires_at, kept_report, next_retry_at, awaits_worker_since) = 0
            WHEN 'cancelled' THEN num_nonnulls(expires_at, lease_expires_at, kept_report, next_retry_at, awaits_worker_since) = 0
            WHEN 'resolved_manually' THEN num_nonnulls(expires_at, lease_expires_at, kept_report, next_retry_at, awaits_worker_since) = 0
            WHEN 'skipped' THEN skip_reason IS NOT NULL AND num_nonnulls(expires_at, lease_expires_at, kept_report, next_retry_at, awaits_worker_since) = 0
            ELSE false
        END
    ) NOT VALID;
COMMENT ON COLUMN tasker.workflow_steps.join_rule IS 'all, any or none_failed: the step is decided when its parents are done. Null: it has no condition, and no parent of it can be skipped, so it is enqueued at once.';
COMMENT ON COLUMN tasker.workflow_steps.decide_at IS 'Instant from which a pending step is due to be decided. Null: not now.';
COMMENT ON COLUMN tasker.workflow_steps.decided_at IS 'When it was decided that the step runs.';
COMMENT ON COLUMN tasker.workflow_steps.skip_reason IS 'Why the step is skipped, in words.';
COMMENT ON COLUMN tasker.workflow_steps.parents_open IS 'Parents that are not yet complete, resolved by hand or skipped. Of a step whose join_rule is any, at least the true number.';
