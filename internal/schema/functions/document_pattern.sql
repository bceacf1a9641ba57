-- document_pattern is a regular expression for the text of a JSON document: one that
-- does not match holds nothing that must not be shown, and need not be walked. It is
-- the only element of key_words of tasker.redaction. The rules of the schema, which hold until a
-- server has stored its own, are words there, in lower case without separators. Without any,
-- nothing matches.
CREATE OR REPLACE FUNCTION tasker.document_pattern(p_words text[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN cardinality(p_words) = 0 THEN 'x\A'
        WHEN p_words[1] LIKE '(?:)%' THEN p_words[1]
        ELSE '(?i)' || regexp_replace(array_to_string(p_words, '|'), '(\w)(?=\w)', '\1[-_ ]*', 'g')
    END
$$;
COMMENT ON FUNCTION tasker.document_pattern(text[]) IS 'A regular expression for the text of JSON: what does not match holds nothing that must not be shown.';
