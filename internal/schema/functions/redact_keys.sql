-- redact_keys hides the values of the keys that match, at any depth, and what must
-- not be shown inside of texts. Most documents have neither, and to search their text
-- is fast: only the branches that may hold something are walked.
-- Walking is slow, so a branch below the third level that is larger than p_most
-- bytes and may hold something is hidden as a whole: what may hold a secret is not
-- kept, and opening an investigation takes no longer for it.
-- Where an object has a name and a value, as in {"name": "password", "value": "x"},
-- the name is a key.
CREATE OR REPLACE FUNCTION tasker.redact_keys(
    p_doc      jsonb,
    p_words    text[],
    p_pattern  text,
    p_most     integer DEFAULT NULL,
    p_level    integer DEFAULT 0,
    p_patterns text[] DEFAULT NULL
) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    _text  text;
    _named boolean;
BEGIN
    IF p_doc IS NULL OR cardinality(p_words) = 0 OR jsonb_typeof(p_doc) IN ('null', 'number', 'boolean') THEN
        RETURN p_doc;
    END IF;
    IF jsonb_typeof(p_doc) = 'string' THEN
        RETURN to_jsonb(tasker.redact_text(p_doc #>> '{}', p_patterns));
    END IF;
    _text := p_doc::text;
    IF _text !~ tasker.document_pattern(p_words) THEN
        RETURN p_doc;
    END IF;
    IF p_level >= 3 AND length(_text) > p_most THEN
        RETURN to_jsonb(format('[redacted: %s characters with a key that must not be shown]', length(_text)));
    END IF;
    IF jsonb_typeof(p_doc) = 'array' THEN
        RETURN (
            SELECT jsonb_agg(tasker.redact_keys(e.value, p_words, p_pattern, p_most, p_level + 1, p_patterns) ORDER BY e.ordinality)
            FROM jsonb_array_elements(p_doc) WITH ORDINALITY e
        );
    END IF;
    _named := p_doc ? 'value' AND EXISTS (
        SELECT
        FROM unnest('{name, key}'::text[]) AS n (key)
        WHERE jsonb_typeof(p_doc -> n.key) = 'string' AND tasker.is_hidden_key(p_doc ->> n.key, p_pattern)
    );
    RETURN (
        SELECT jsonb_object_agg(e.key, CASE
            WHEN e.value <> 'null' AND (_named AND e.key = 'value' OR tasker.is_hidden_key(e.key, p_pattern)) THEN '"[redacted]"'
            ELSE tasker.redact_keys(e.value, p_words, p_pattern, p_most, p_level + 1, p_patterns)
        END)
        FROM jsonb_each(p_doc) e
    );
END
$$;
COMMENT ON FUNCTION tasker.redact_keys(jsonb, text[], text, integer, integer, text[]) IS 'A document without the values whose keys match, and without what must not be shown inside of its texts.';
