-- key_words spells the key of a document as it is compared with the rules of
-- redaction (package redact, words): in lower case, with a blank before, after and
-- between its words. A word ends at a separator (- _ . / : and all white space), where
-- letters and digits meet, and where camelCase goes on.
CREATE OR REPLACE FUNCTION tasker.key_words(p_key text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT ' ' || lower(regexp_replace(p_key,
        '[-_./:\u0009-\u000d \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+'
            || '|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])',
        ' ', 'g') COLLATE "C") || ' '
$$;
COMMENT ON FUNCTION tasker.key_words(text) IS 'The words of a key in lower case, with a blank before, after and between them.';
