-- redact_path hides what is at one place of a document. A * in the path stands
-- for each key of an object and each element of an array; a place that is not
-- there is no error.
CREATE OR REPLACE FUNCTION tasker.redact_path(
    p_doc  jsonb,
    p_path jsonb
) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    _key  text := p_path ->> 0;
    _rest jsonb := p_path - 0;
BEGIN
    IF p_doc IS NULL OR p_doc = 'null' THEN
        RETURN p_doc;
    END IF;
    IF _key IS NULL THEN
        RETURN '"[redacted]"';
    END IF;
    CASE jsonb_typeof(p_doc)
    WHEN 'object' THEN
        RETURN (
            SELECT coalesce(jsonb_object_agg(e.key, CASE WHEN _key IN ('*', e.key) THEN tasker.redact_path(e.value, _rest) ELSE e.value END), p_doc)
            FROM jsonb_each(p_doc) e
        );
    WHEN 'array' THEN
        RETURN (
            SELECT coalesce(jsonb_agg(
                CASE WHEN _key IN ('*', (e.ordinality - 1)::text) THEN tasker.redact_path(e.value, _rest) ELSE e.value END
                ORDER BY e.ordinality), p_doc)
            FROM jsonb_array_elements(p_doc) WITH ORDINALITY e
        );
    ELSE
        RETURN p_doc;
    END CASE;
END
$$;
COMMENT ON FUNCTION tasker.redact_path(jsonb, jsonb) IS 'A document with what is at a path hidden; * stands for each key or element.';
