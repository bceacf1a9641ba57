-- dlq_base_priority is the weight of a reason in the triage queue, in minutes of
-- age: an entry of weight 500 stands where one of weight 100 stands that is 400
-- minutes older. Not STRICT, or it would not become part of the statement that asks.
CREATE OR REPLACE FUNCTION tasker.dlq_base_priority(p_reason tasker.dlq_reason) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE p_reason
        WHEN 'dependency_cycle_detected' THEN 1000
        WHEN 'max_retries_exceeded'      THEN 500
        WHEN 'staleness_timeout'         THEN 100
        WHEN 'worker_unavailable'        THEN 50
        WHEN 'manual_dlq'                THEN 10
    END
$$;
COMMENT ON FUNCTION tasker.dlq_base_priority(tasker.dlq_reason) IS 'Base priority of a reason: minutes of age it is worth in the triage queue.';
