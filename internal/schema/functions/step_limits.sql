-- step_limits returns all limits of a step that have a key: those that its queue shares and those that
-- a template assigns to it.
CREATE OR REPLACE FUNCTION tasker.step_limits(p_task uuid, p_step uuid, p_namespace text, p_handler text)
RETURNS TABLE (limit_id bigint, key text, weight integer, limit_key_id bigint)
LANGUAGE sql STABLE
AS $$
    SELECT k.limit_id, k.key, 1, k.limit_key_id
    FROM (
        SELECT l.limit_id FROM tasker.limits l WHERE l.namespace = '' AND l.kind = 'server' AND l.name = ''
        UNION ALL
        SELECT l.limit_id FROM tasker.limits l WHERE l.namespace = p_namespace AND l.kind = 'namespace' AND l.name = ''
        UNION ALL
        SELECT l.limit_id FROM tasker.limits l WHERE l.namespace = p_namespace AND l.kind = 'handler' AND l.name = p_handler
    ) x
    JOIN tasker.limit_keys k ON k.limit_id = x.limit_id AND k.key = ''
    UNION ALL
    SELECT n.limit_id, n.key, n.weight, n.limit_key_id
    FROM tasker.named_limits(p_task, p_step) n
    WHERE n.limit_key_id IS NOT NULL
$$;
COMMENT ON FUNCTION tasker.step_limits(uuid, uuid, text, text) IS 'The limits of a step that have a key: those that its queue shares and those that a template assigns to it.';
