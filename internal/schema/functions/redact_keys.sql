-- redact_keys hides the values of the keys that match, at any depth. Most
-- documents have none, and a search for words in the text is fast: only the
-- branches that hold one are walked. Words are letters and digits (package redact).
-- Walking is slow, so a branch below the third level that is larger than p_most
-- bytes and holds a word is hidden as a whole: what may hold a secret is not kept,
-- and opening an investigation takes no longer for it.
CREATE OR REPLACE FUNCTION tasker.redact_keys(
    p_doc     jsonb,
    p_words   text[],
    p_pattern text,
    p_most    integer DEFAULT NULL,
    p_level   integer DEFAULT 0
) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    _text text;
BEGIN
    IF p_doc IS NULL OR cardinality(p_words) = 0 OR jsonb_typeof(p_doc) NOT IN ('object', 'array') THEN
        RETURN p_doc;
    END IF;
    _text := p_doc::text;
    IF tasker.plain_text(_text) !~ array_to_string(p_words, '|') THEN
        RETURN p_doc;
    END IF;
    IF p_level >= 3 AND length(_text) > p_most THEN
        RETURN to_jsonb(format('[redacted: %s characters with a key that must not be shown]', length(_text)));
    END IF;
    IF jsonb_typeof(p_doc) = 'array' THEN
        RETURN (
            SELECT jsonb_agg(CASE
                WHEN jsonb_typeof(e.value) IN ('object', 'array') THEN tasker.redact_keys(e.value, p_words, p_pattern, p_most, p_level + 1)
                ELSE e.value
            END ORDER BY e.ordinality)
            FROM jsonb_array_elements(p_doc) WITH ORDINALITY e
        );
    END IF;
    RETURN (
        SELECT jsonb_object_agg(e.key, CASE
            WHEN e.value <> 'null' AND tasker.plain_text(e.key) ~ p_pattern THEN '"[redacted]"'
            WHEN jsonb_typeof(e.value) IN ('object', 'array') THEN tasker.redact_keys(e.value, p_words, p_pattern, p_most, p_level + 1)
            ELSE e.value
        END)
        FROM jsonb_each(p_doc) e
    );
END
$$;
COMMENT ON FUNCTION tasker.redact_keys(jsonb, text[], text, integer, integer) IS 'A document with the values hidden whose keys match.';
