-- step_retry_at is the instant from which a failed step may be enqueued again:
-- min(base * 2^(attempts-1), cap) after the failure, or the linear or
-- constant kind. p_jitter, from 0 to 1, adds up to a quarter; the caller brings it,
-- so the function is pure.
CREATE OR REPLACE FUNCTION tasker.step_retry_at(
    p_failed_at timestamptz,
    p_attempts  integer,
    p_backoff   text,
    p_base_ms   integer,
    p_cap_ms    integer,
    p_jitter    double precision DEFAULT 0
) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT p_failed_at + interval '1 millisecond' * (1 + p_jitter / 4) * least(
        p_cap_ms,
        p_base_ms * CASE p_backoff
            WHEN 'exponential' THEN power(2::double precision, least(greatest(p_attempts, 1), 31) - 1)
            WHEN 'linear'      THEN greatest(p_attempts, 1)
            ELSE 1
        END
    )
$$;
COMMENT ON FUNCTION tasker.step_retry_at(timestamptz, integer, text, integer, integer, double precision) IS 'Instant from which a failed step may be enqueued again.';
