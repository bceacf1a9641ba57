-- redact_error is the error of a step as it may be told outside of the snapshot: a
-- place of the snapshot that is hidden is hidden wherever it is told. A path may name
-- a step, or one of its failures, by its number; which number the error has is not
-- known here, so it is hidden if it would be with any.
CREATE OR REPLACE FUNCTION tasker.redact_error(p_error jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    _rules tasker.redaction;
    _step  jsonb;
    _whole jsonb;
    _shown jsonb;
BEGIN
    IF p_error IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT * INTO _rules FROM tasker.redaction r WHERE r.only_row;
    -- Most errors hold nothing, and each event of an investigation asks: its text is searched once.
    IF _rules.paths = '[]' AND '{"steps": [{"error": ' || p_error::text || ', "failures": [{"error": ' !~ tasker.document_pattern(_rules.key_words) THEN
        RETURN p_error;
    END IF;
    _step := jsonb_build_object('error', p_error, 'failures', jsonb_build_array(jsonb_build_object('error', p_error)));
    _whole := jsonb_build_object('steps', jsonb_build_array(_step));
    IF EXISTS (
        SELECT
        FROM tasker.redaction r
        CROSS JOIN jsonb_array_elements(r.paths) p
        CROSS JOIN LATERAL (
            SELECT jsonb_agg(CASE WHEN k.n IN (2, 4) AND k.key ~ '^[0-9]+$' THEN '*' ELSE k.key END ORDER BY k.n) AS any_number
            FROM jsonb_array_elements_text(p.value) WITH ORDINALITY AS k (key, n)
        ) a
        WHERE r.only_row AND a.any_number <> p.value AND tasker.redact_path(_whole, a.any_number) <> _whole
    ) THEN
        RETURN '"[redacted]"';
    END IF;
    _shown := tasker.redact_snapshot(_whole) -> 'steps' -> 0;
    IF _shown -> 'error' IS NULL OR _shown -> 'error' IS DISTINCT FROM _shown -> 'failures' -> 0 -> 'error' THEN
        RETURN '"[redacted]"'; -- hidden in one of the places where it stands, or hiding failed
    END IF;
    RETURN _shown -> 'error';
END
$$;
COMMENT ON FUNCTION tasker.redact_error(jsonb) IS 'The error of a step as it may be told outside of the snapshot.';
