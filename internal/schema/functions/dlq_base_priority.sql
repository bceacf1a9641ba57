-- dlq_base_priority returns the weight of a reason in the investigation queue, in
-- minutes of age: an entry of weight 500 stands where one of weight 100 stands that is
-- 400 minutes older. It is what a new or raised entry gets; entries keep what they have
-- when the configuration changes.
CREATE OR REPLACE FUNCTION tasker.dlq_base_priority(p_reason tasker.dlq_reason) RETURNS integer
LANGUAGE sql STABLE
AS $$
    SELECT b.minutes FROM tasker.dlq_base_priorities b WHERE b.dlq_reason = p_reason
$$;
COMMENT ON FUNCTION tasker.dlq_base_priority(tasker.dlq_reason) IS 'Base priority of a reason: minutes of age it is worth in the investigation queue.';
