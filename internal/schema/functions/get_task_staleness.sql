-- get_task_staleness is the head of the staleness monitor: stale tasks, then
-- those past 80 % of their threshold, then healthy ones; within each, the longest
-- in its state first. A task with a step that is worked on within its own timeout is
-- healthy, because the sweep leaves it alone. Each class of each threshold is one index range in that
-- order, so nothing but the head is read, and a class only when those before it
-- have not filled the page; for the healthy ones all are read again that are past 80 %,
-- which have not. A filter of namespace or name reads the tasks that it leaves out as well.
CREATE OR REPLACE FUNCTION tasker.get_task_staleness(
    p_limit integer DEFAULT 100,
    p_now   timestamptz DEFAULT clock_timestamp(),
    p_namespaces text[] DEFAULT NULL,
    p_health     text DEFAULT NULL,
    p_namespace  text DEFAULT NULL,
    p_name       text DEFAULT NULL
) RETURNS TABLE (
    task_uuid                   uuid,
    namespace_name              text,
    task_name                   text,
    current_state               text,
    time_in_state_minutes       double precision,
    task_age_minutes            double precision,
    staleness_threshold_minutes double precision,
    health_status               text,
    priority                    integer
)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    _class record;
    _left  integer := p_limit;
    _found integer;
BEGIN
    IF p_limit < 1 THEN
        RAISE EXCEPTION 'p_limit must be at least 1, not %', p_limit USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF p_health NOT IN ('stale', 'warning', 'healthy') THEN
        RAISE EXCEPTION 'p_health must be stale, warning or healthy, not %', p_health USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR _class IN
        SELECT * FROM (VALUES ('stale', 1.0, NULL), ('warning', 0.8, 1.0), ('healthy', NULL, 0.8)) AS c (health, from_share, to_share)
        WHERE p_health IS NULL OR c.health = p_health
    LOOP
        RETURN QUERY
        SELECT
            s.task_uuid, s.namespace, s.name, s.state,
            extract(epoch FROM p_now - s.state_since)::double precision / 60,
            extract(epoch FROM p_now - s.created_at)::double precision / 60,
            h.seconds / 60, _class.health, s.priority
        FROM tasker.thresholds_in_use() AS h (seconds)
        CROSS JOIN LATERAL (
            SELECT t.task_uuid, t.namespace, t.name, t.state, t.state_since, t.created_at, t.priority
            FROM tasker.tasks t
            WHERE t.stale_at IS NOT NULL
              AND (p_namespaces IS NULL OR t.namespace = ANY (p_namespaces))
              AND (p_namespace IS NULL OR t.namespace = p_namespace)
              AND (p_name IS NULL OR t.name = p_name)
              AND extract(epoch FROM t.stale_at - t.state_since)::double precision = h.seconds
              AND t.state_since <= coalesce(p_now - make_interval(secs => h.seconds * _class.from_share), 'infinity')
              AND t.state_since > coalesce(CASE WHEN _class.health <> 'healthy' THEN p_now - make_interval(secs => h.seconds * _class.to_share) END, '-infinity')
              AND CASE
                  WHEN _class.health <> 'healthy' THEN NOT EXISTS (SELECT FROM tasker.steps_within_timeout(t.task_uuid, t.template_uuid, p_now) OFFSET 0)
                  ELSE t.state_since > p_now - make_interval(secs => h.seconds * _class.to_share)
                      OR EXISTS (SELECT FROM tasker.steps_within_timeout(t.task_uuid, t.template_uuid, p_now) OFFSET 0)
              END
            ORDER BY t.state_since, t.task_uuid
            LIMIT _left
        ) s
        ORDER BY s.state_since, s.task_uuid
        LIMIT _left;
        GET DIAGNOSTICS _found = ROW_COUNT;
        _left := _left - _found;
        EXIT WHEN _left <= 0;
    END LOOP;
END
$$;
COMMENT ON FUNCTION tasker.get_task_staleness(integer, timestamptz, text[], text, text, text) IS 'The watched tasks nearest to their staleness threshold, of some namespaces or of all, of one health, one namespace and one template if given: stale, warning, healthy; the longest in their state first.';
