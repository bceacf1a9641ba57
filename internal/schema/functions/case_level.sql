-- case_level is the highest of the numbers of open investigations that make a case
-- escalate, once each. Not STRICT, so that it is inlined.
CREATE OR REPLACE FUNCTION tasker.case_level(p_open bigint) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN p_open > 10000 THEN 10000 WHEN p_open > 1000 THEN 1000 WHEN p_open > 100 THEN 100 ELSE 0 END
$$;
COMMENT ON FUNCTION tasker.case_level(bigint) IS 'The highest of 100, 1,000 and 10,000 that a number of open investigations has passed; 0 for none.';
