-- case_harm says how much a case costs: by it the list of cases is ordered. It grows with
-- the severity, with the doubling of what waits, with its growth over the last five
-- minutes compared with the half hour before, and is less while somebody has the case or it rests. Not STRICT, so that it is inlined.
CREATE OR REPLACE FUNCTION tasker.case_harm(
    p_severity text,
    p_stuck    bigint,
    p_recent   bigint,
    p_earlier  bigint,
    p_owned    boolean,
    p_resting  boolean
) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE p_severity WHEN 'critical' THEN 8 WHEN 'high' THEN 4 WHEN 'medium' THEN 2 ELSE 1 END
        * (1 + ln(1 + p_stuck::double precision) / ln(2.0::double precision))
        * (1 + least(2, p_recent / 5.0::double precision / greatest(1, p_earlier / 30.0::double precision) / 5))
        * CASE WHEN p_resting THEN 0.2 WHEN p_owned THEN 0.6 ELSE 1 END
$$;
COMMENT ON FUNCTION tasker.case_harm(text, bigint, bigint, bigint, boolean, boolean) IS 'How much a case costs, to order the list of cases by it.';
