-- redact_note is a text as it may be shown: notes, reasons, messages.
CREATE OR REPLACE FUNCTION tasker.redact_note(p_text text) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE
AS $$
    SELECT CASE WHEN p_text ~ tasker.document_pattern(r.key_words) THEN tasker.redact_text(p_text, r.text_patterns) ELSE p_text END
    FROM tasker.redaction r
    WHERE r.only_row
$$;
COMMENT ON FUNCTION tasker.redact_note(text) IS 'A text as it may be shown: without what must not be shown inside of it.';
