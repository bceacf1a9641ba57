-- case_state is the state of a case by what is known of it: the first that holds. p_recent
-- are its investigations of the last five minutes, p_earlier those of the half hour
-- before. p_level is the highest of 100, 1,000 and 10,000 that its open investigations had
-- passed; p_touched says that somebody has it or acted on one of them. A resolved case is
-- opened again by whoever adds an investigation to it (package cases). Not STRICT, so that it is inlined.
CREATE OR REPLACE FUNCTION tasker.case_state(
    p_state         text,
    p_since         timestamptz,
    p_first_seen    timestamptz,
    p_level         integer,
    p_snoozed_until timestamptz,
    p_snooze_above  bigint,
    p_touched       boolean,
    p_open          bigint,
    p_recent        bigint,
    p_earlier       bigint,
    p_now           timestamptz
) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN p_open = 0 THEN 'resolved'
        WHEN p_snoozed_until > p_now AND p_open <= coalesce(p_snooze_above, p_open) THEN 'resting'
        WHEN p_snoozed_until > p_now THEN 'escalating' -- more than it was to rest for
        WHEN p_state = 'regressed' AND NOT p_touched THEN 'regressed'
        WHEN tasker.case_level(p_open) > p_level THEN 'escalating'
        WHEN p_recent >= 20 AND p_recent * 6 >= p_earlier * 3 AND p_first_seen <= p_now - interval '10 minutes' THEN 'escalating'
        WHEN p_state = 'escalating' AND p_recent > 0 AND (p_since > p_now - interval '15 minutes' OR p_recent * 6 >= p_earlier * 1.5) THEN 'escalating'
        WHEN p_state = 'new' AND NOT p_touched AND p_first_seen > p_now - interval '1 day' THEN 'new'
        ELSE 'ongoing'
    END
$$;
COMMENT ON FUNCTION tasker.case_state(text, timestamptz, timestamptz, integer, timestamptz, bigint, boolean, bigint, bigint, bigint, timestamptz) IS 'The state of a case by what is known of it.';
