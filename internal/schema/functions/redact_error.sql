-- redact_error is the error of a step as it may be told outside of the snapshot: a
-- place of the snapshot that is hidden is hidden wherever it is told.
CREATE OR REPLACE FUNCTION tasker.redact_error(p_error jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    _step  jsonb := jsonb_build_object('error', p_error, 'failures', jsonb_build_array(jsonb_build_object('error', p_error)));
    _shown jsonb;
BEGIN
    IF p_error IS NULL THEN
        RETURN NULL;
    END IF;
    _shown := tasker.redact_snapshot(jsonb_build_object('steps', jsonb_build_array(_step))) -> 'steps' -> 0;
    IF _shown -> 'error' IS NULL OR _shown -> 'error' IS DISTINCT FROM _shown -> 'failures' -> 0 -> 'error' THEN
        RETURN '"[redacted]"'; -- hidden in one of the places where it stands, or hiding failed
    END IF;
    RETURN _shown -> 'error';
END
$$;
COMMENT ON FUNCTION tasker.redact_error(jsonb) IS 'The error of a step as it may be told outside of the snapshot.';
