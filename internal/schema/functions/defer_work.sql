-- defer_work records that work on a task or a step failed, and returns when it may be
-- tried again. The delay doubles with each failure in a row, from a second to an
-- hour. Rows that nobody has tried again for a day after they were due, because the
-- task is gone or has moved on by other means, are removed here, so that the table
-- cannot grow without bound.
CREATE OR REPLACE FUNCTION tasker.defer_work(
    p_kind  text,
    p_task  uuid,
    p_step  uuid,
    p_error text
) RETURNS timestamptz
LANGUAGE plpgsql
AS $$
DECLARE
    _now      timestamptz := clock_timestamp();
    _retry_at timestamptz;
BEGIN
    DELETE FROM tasker.deferred_work d
    WHERE (d.kind, d.task_uuid, d.step_uuid) IN (
        SELECT o.kind, o.task_uuid, o.step_uuid
        FROM tasker.deferred_work o
        WHERE o.retry_at < _now - interval '1 day'
        ORDER BY o.retry_at
        LIMIT 100
        FOR UPDATE SKIP LOCKED
    );
    INSERT INTO tasker.deferred_work AS d (kind, task_uuid, step_uuid, last_error, first_failed_at, last_failed_at, retry_at)
    VALUES (p_kind, p_task, coalesce(p_step, '00000000-0000-0000-0000-000000000000'), left(coalesce(p_error, ''), 1000),
        _now, _now, _now + interval '1 second')
    ON CONFLICT (kind, task_uuid, step_uuid) DO UPDATE
    SET failures = d.failures + 1,
        last_error = excluded.last_error,
        last_failed_at = _now,
        retry_at = _now + least(interval '1 hour', interval '1 second' * power(2, least(d.failures, 12)))
    RETURNING d.retry_at INTO _retry_at;
    RETURN _retry_at;
END
$$;
COMMENT ON FUNCTION tasker.defer_work(text, uuid, uuid, text) IS 'Records that work on a task, or a step if one is given, failed; returns when it may be tried again.';
