-- thresholds_in_use lists the different staleness thresholds of the watched
-- tasks, in seconds. There are few, and it reads one index entry for each.
CREATE OR REPLACE FUNCTION tasker.thresholds_in_use() RETURNS SETOF double precision
LANGUAGE sql STABLE
AS $$
    WITH RECURSIVE threshold (seconds) AS (
        (
            SELECT extract(epoch FROM t.stale_at - t.state_since)::double precision
            FROM tasker.tasks t
            WHERE t.stale_at IS NOT NULL
            ORDER BY extract(epoch FROM t.stale_at - t.state_since)::double precision
            LIMIT 1
        )
        UNION ALL
        SELECT (
            SELECT extract(epoch FROM t.stale_at - t.state_since)::double precision
            FROM tasker.tasks t
            WHERE t.stale_at IS NOT NULL AND extract(epoch FROM t.stale_at - t.state_since)::double precision > h.seconds
            ORDER BY extract(epoch FROM t.stale_at - t.state_since)::double precision
            LIMIT 1
        )
        FROM threshold h
        WHERE h.seconds IS NOT NULL
    )
    SELECT seconds FROM threshold WHERE seconds IS NOT NULL
$$;
COMMENT ON FUNCTION tasker.thresholds_in_use() IS 'The different staleness thresholds of the watched tasks, in seconds.';
