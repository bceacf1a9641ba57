-- What every step pays for is made less: indexes to enter, and rules to check.

-- Servers run meanwhile. Taken one after another, the locks of these statements would
-- wait for transactions that wait for them.
LOCK TABLE tasker.tasks, tasker.workflow_steps, tasker.tasks_dlq IN ACCESS EXCLUSIVE MODE;

-- Tasks are listed by their template, newest first: those of a name are those of
-- its versions, those of a namespace those of its names. One narrow index in place
-- of two.
CREATE INDEX tasks_of_template ON tasker.tasks (template_uuid, task_uuid DESC);
DROP INDEX tasker.tasks_by_name;
DROP INDEX tasker.tasks_by_template;

-- Every state where a task rests is a known one.
ALTER TABLE tasker.tasks DROP CONSTRAINT task_state_is_known;

-- What a step has in which state, as one rule in place of six: each is read anew by
-- every statement and checked for every row.
ALTER TABLE tasker.workflow_steps
    ADD CONSTRAINT step_has_what_its_state_needs CHECK (
        CASE state
            WHEN 'complete' THEN num_nonnulls(expires_at, lease_expires_at, kept_report, next_retry_at, awaits_worker_since) = 0
            WHEN 'in_progress' THEN lease_expires_at IS NOT NULL AND num_nonnulls(expires_at, kept_report, next_retry_at, awaits_worker_since) = 0
            WHEN 'enqueued' THEN expires_at IS NOT NULL AND num_nonnulls(lease_expires_at, kept_report, next_retry_at, awaits_worker_since) = 0
            WHEN 'error' THEN num_nonnulls(expires_at, lease_expires_at, kept_report) = 0 AND num_nonnulls(next_retry_at, awaits_worker_since) <= 1
            WHEN 'enqueued_for_orchestration' THEN kept_report IS NOT NULL AND num_nonnulls(expires_at, lease_expires_at, next_retry_at, awaits_worker_since) = 0
            WHEN 'pending' THEN num_nonnulls(expires_at, lease_expires_at, kept_report, next_retry_at, awaits_worker_since) = 0
            WHEN 'cancelled' THEN num_nonnulls(expires_at, lease_expires_at, kept_report, next_retry_at, awaits_worker_since) = 0
            WHEN 'resolved_manually' THEN num_nonnulls(expires_at, lease_expires_at, kept_report, next_retry_at, awaits_worker_since) = 0
            ELSE false
        END
    ),
    ADD CONSTRAINT step_settings_are_known CHECK (
        step_type IN ('standard', 'external') AND backoff IN ('exponential', 'linear', 'constant') AND coalesce(queue_ttl_ms, 1) > 0
    ),
    DROP CONSTRAINT step_state_is_known,
    DROP CONSTRAINT step_in_progress_has_lease,
    DROP CONSTRAINT step_kept_has_its_report,
    DROP CONSTRAINT step_waits_for_retry_only_in_error,
    DROP CONSTRAINT step_enqueued_has_its_limit,
    DROP CONSTRAINT step_awaits_worker_only_in_error,
    DROP CONSTRAINT step_type_is_known,
    DROP CONSTRAINT step_backoff_is_known,
    DROP CONSTRAINT step_queue_ttl_is_positive;

-- It comes again with one parameter more.
DROP FUNCTION IF EXISTS tasker.detect_and_transition_stale_tasks(boolean, integer);
