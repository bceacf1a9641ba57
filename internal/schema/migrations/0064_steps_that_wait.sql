-- Steps of type wait end by the clock.
ALTER TABLE tasker.workflow_steps
    ADD CONSTRAINT step_settings_are_right CHECK (
        step_type IN ('standard', 'external', 'wait') AND backoff IN ('exponential', 'linear', 'constant') AND coalesce(queue_ttl_ms, 1) > 0
    ) NOT VALID,
    DROP CONSTRAINT step_settings_are_known;
