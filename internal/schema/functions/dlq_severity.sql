-- dlq_severity returns how much a stuck task of a cause usually costs. Package tasker has
-- the table of causes; a test compares the two. Not STRICT, so that it is inlined.
CREATE OR REPLACE FUNCTION tasker.dlq_severity(p_reason tasker.dlq_reason, p_detail_code text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN p_reason = 'dependency_cycle_detected' AND p_detail_code = 'dependency_cycle' THEN 'critical'
        WHEN p_reason = 'max_retries_exceeded' AND p_detail_code IN
            ('retries_exhausted', 'permanent_failure', 'worker_lost', 'step_timeout', 'external_failure', 'external_timeout', 'expression_failed', 'child_refused', 'child_failed', 'input_too_large', 'unrecovered_error') THEN 'high'
        WHEN p_reason = 'worker_unavailable' AND p_detail_code = 'no_workers' THEN 'high'
        WHEN p_reason = 'manual_dlq' AND p_detail_code = 'operator_request' THEN 'low'
        ELSE 'medium' -- also of a code that a newer program has stored
    END
$$;
COMMENT ON FUNCTION tasker.dlq_severity(tasker.dlq_reason, text) IS 'Severity of a cause: critical, high, medium or low.';
