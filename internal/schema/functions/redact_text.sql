-- redact_text hides what must not be shown inside of a text: each pattern has three
-- groups, what stays before, what is hidden, and what stays after (package redact).
CREATE OR REPLACE FUNCTION tasker.redact_text(p_text text, p_patterns text[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    _pattern text;
BEGIN
    FOREACH _pattern IN ARRAY coalesce(p_patterns, '{}') LOOP
        p_text := regexp_replace(p_text, _pattern, '\1[redacted]\3', 'g');
    END LOOP;
    RETURN p_text;
END
$$;
COMMENT ON FUNCTION tasker.redact_text(text, text[]) IS 'A text without what must not be shown inside of it.';
