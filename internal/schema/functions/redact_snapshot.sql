-- redact_snapshot is a snapshot as it may be kept: frozen evidence must never
-- have held a secret. If hiding fails, what may hold one is left out: an
-- investigation is opened all the same.
CREATE OR REPLACE FUNCTION tasker.redact_snapshot(p_snapshot jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    _rules tasker.redaction;
    _path  jsonb;
    _most  integer;
BEGIN
    SELECT * INTO _rules FROM tasker.redaction r WHERE r.only_row;
    -- The block that catches costs a subtransaction: only where there is work to do.
    IF _rules.paths = '[]' AND (
        p_snapshot::text !~ tasker.document_pattern(_rules.key_words)
    ) THEN
        RETURN p_snapshot;
    END IF;
    BEGIN
        -- 128 KB are walked in a tenth of a second; a batch of the sweep opens a hundred.
        IF length(p_snapshot::text) > 131072 THEN
            _most := greatest(1024, 131072 / (3 * greatest(jsonb_array_length(coalesce(p_snapshot -> 'steps', '[]')), 1)));
        END IF;
        p_snapshot := tasker.redact_keys(p_snapshot, _rules.key_words, _rules.key_pattern, _most, 0, _rules.text_patterns);
        FOR _path IN SELECT value FROM jsonb_array_elements(_rules.paths) LOOP
            p_snapshot := tasker.redact_path(p_snapshot, _path);
        END LOOP;
        RETURN p_snapshot;
    EXCEPTION WHEN OTHERS THEN
        RAISE WARNING 'redaction of the snapshot of task %: %', p_snapshot ->> 'task_uuid', SQLERRM;
        RETURN (p_snapshot - ARRAY['task', 'template', 'steps', 'transitions']) -- what Tasker itself wrote stays
            || jsonb_build_object('redaction_failed', SQLERRM);
    END;
END
$$;
COMMENT ON FUNCTION tasker.redact_snapshot(jsonb) IS 'A snapshot as it may be kept: without what the configuration says must not be shown.';
