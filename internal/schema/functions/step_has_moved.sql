-- step_has_moved ends a statement that found a step in another state than the one for which a
-- change of it was decided: a worker has claimed or released it in the meantime. The transaction is
-- repeated, as after every serialization failure.
CREATE OR REPLACE FUNCTION tasker.step_has_moved() RETURNS bigint
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'a step has moved in the meantime' USING ERRCODE = 'serialization_failure';
END
$$;
COMMENT ON FUNCTION tasker.step_has_moved() IS 'Ends a statement that found a step in another state than the one for which a change was decided.';
