-- free_slots returns the free slots of a limit key, how many of them a step can take at most, and
-- when a rate frees the next one. It counts the used slots if their number is null. Unless the key is
-- locked, the result is only a hint.
CREATE OR REPLACE FUNCTION tasker.free_slots(p_limit_key bigint, p_used bigint)
RETURNS TABLE (free integer, most integer, retry_ms integer)
LANGUAGE sql STABLE
AS $$
    SELECT greatest(least(n.unused, floor(n.tokens), 1000000000), 0)::int, least(l.max_in_progress, l.burst),
        CASE WHEN n.unused <= 0 THEN NULL ELSE least(greatest((floor(n.tokens) + 1 - n.tokens) / l.per_second * 1000, 1), 1000000000) END::int
    FROM tasker.limit_keys k
    JOIN tasker.limits l ON l.limit_id = k.limit_id
    CROSS JOIN LATERAL (
        SELECT l.max_in_progress - coalesce(p_used, (
                SELECT coalesce(sum(x.weight), 0)
                FROM (
                    SELECT h.weight
                    FROM tasker.limit_slots h
                    WHERE h.limit_key_id = k.limit_key_id AND EXISTS (
                        SELECT FROM tasker.workflow_steps s
                        WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state || '' = 'in_progress' AND s.fence = h.fence
                        OFFSET 0 -- one lookup by key per row
                    )
                    LIMIT l.max_in_progress
                ) x
            )) AS unused,
            l.burst - greatest(extract(epoch FROM nullif(k.full_at, '-infinity') - clock_timestamp()), 0) * l.per_second + 1e-9 AS tokens
        OFFSET 0 -- evaluated once
    ) n
    WHERE k.limit_key_id = p_limit_key
$$;
COMMENT ON FUNCTION tasker.free_slots(bigint, bigint) IS 'Free slots of a limit key, slots that a step can take at most, and the time until a rate frees the next one.';
