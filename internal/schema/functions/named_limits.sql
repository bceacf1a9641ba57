-- named_limits returns the limits that a template assigns to a step, with their keys. An item has the
-- limits of its map step. The key id is null until a claim creates the key.
CREATE OR REPLACE FUNCTION tasker.named_limits(p_task uuid, p_step uuid)
RETURNS TABLE (limit_id bigint, key text, weight integer, most integer, limit_key_id bigint)
LANGUAGE sql STABLE
AS $$
    SELECT t.limit_id, t.key, t.weight, least(l.max_in_progress, l.burst), (
            SELECT k.limit_key_id FROM tasker.limit_keys k WHERE k.limit_id = t.limit_id AND k.key = t.key
        )
    FROM tasker.task_limits t
    JOIN tasker.limits l ON l.limit_id = t.limit_id
    WHERE t.task_uuid = p_task AND (t.step_uuid IS NULL OR t.step_uuid = p_step OR t.step_uuid = (
        SELECT i.map_step_uuid FROM tasker.workflow_steps i WHERE i.task_uuid = p_task AND i.step_uuid = p_step
    ))
$$;
COMMENT ON FUNCTION tasker.named_limits(uuid, uuid) IS 'The limits that a template assigns to a step, with their keys.';
