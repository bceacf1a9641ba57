-- retry_rest is what a task that waits for a retry, or for an answer that has a
-- timeout, may stand still beyond the server's threshold: a rest that its handler or
-- its template asked for is no standstill, and an investigation would take the retry away. Rests of up to a
-- minute are not worth it; longer ones are rounded up to a power of two of
-- minutes, so that there are few different thresholds (see thresholds_in_use). A
-- limit that the template itself sets holds as it is written.
CREATE OR REPLACE FUNCTION tasker.retry_rest(
    p_state    text,
    p_template tasker.task_templates,
    p_rest     interval
) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN p_rest > interval '1 minute' AND (p_state = 'waiting_for_retry' AND p_template.max_waiting_for_retry_minutes IS NULL
            OR p_state = 'waiting_for_dependencies' AND p_template.max_waiting_for_dependencies_minutes IS NULL) THEN
            make_interval(mins => power(2, least(ceil(ln(extract(epoch FROM p_rest)::double precision / 60) / ln(2)), 22))::integer)
        ELSE interval '0'
    END
$$;
COMMENT ON FUNCTION tasker.retry_rest(text, tasker.task_templates, interval) IS 'How much longer than the server''s threshold a task may wait for a retry or an answer, by the rest until then.';
