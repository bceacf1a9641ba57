-- redact_document is a document as it may be shown beside the evidence: what an
-- investigator wrote into an investigation, for example. A document that holds nothing
-- of the kind costs one search of its text.
CREATE OR REPLACE FUNCTION tasker.redact_document(p_doc jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    _rules tasker.redaction;
BEGIN
    SELECT * INTO _rules FROM tasker.redaction r WHERE r.only_row;
    IF p_doc::text !~ tasker.document_pattern(_rules.key_words) THEN
        RETURN p_doc;
    END IF;
    RETURN tasker.redact_keys(p_doc, _rules.key_words, _rules.key_pattern, NULL, 0, _rules.text_patterns);
END
$$;
COMMENT ON FUNCTION tasker.redact_document(jsonb) IS 'A document as it may be shown: without what the configuration says must not be.';
