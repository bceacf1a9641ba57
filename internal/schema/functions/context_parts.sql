-- context_parts is what stands at places of a context: the value as a text, and the
-- context without all else, by which redact_snapshot says whether the value may be
-- shown. A place is reached through keys of objects. Lists, objects, null and texts of more
-- than p_most characters are no values.
CREATE OR REPLACE FUNCTION tasker.context_parts(p_context jsonb, p_paths jsonb, p_most integer)
RETURNS TABLE (ordinal integer, value text, part jsonb)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    _path text[];
    _in   jsonb;
BEGIN
    p_context := p_context || '{}'; -- read from its place once
    <<places>>
    FOR ordinal, _path IN
        SELECT e.ordinality, ARRAY(SELECT jsonb_array_elements_text(e.value)) FROM jsonb_array_elements(p_paths) WITH ORDINALITY e
    LOOP
        part := p_context #> _path;
        CONTINUE WHEN part IS NULL OR jsonb_typeof(part) NOT IN ('string', 'number', 'boolean');
        value := part #>> '{}';
        CONTINUE WHEN length(value) > p_most;
        FOR i IN REVERSE cardinality(_path)..1 LOOP
            _in := p_context #> _path[:i - 1];
            CONTINUE places WHEN jsonb_typeof(_in) <> 'object';
            part := jsonb_build_object(_path[i], part);
            IF _path[i] = 'value' THEN -- which has a name beside it, perhaps
                SELECT part || coalesce(jsonb_object_agg(k, _in -> k), '{}') INTO part
                FROM unnest('{name, key}'::text[]) k WHERE jsonb_typeof(_in -> k) = 'string';
            END IF;
        END LOOP;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION tasker.context_parts(jsonb, jsonb, integer) IS 'What stands at places of a context, and the context without all else.';
