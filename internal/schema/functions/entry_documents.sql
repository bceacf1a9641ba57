-- entry_documents is what is large of investigations, in the order they are named, as
-- far as it fits into a budget of bytes. Of what does not fit, snapshot and metadata are
-- replaced by omissions, and notes are cut. See step_documents.
CREATE OR REPLACE FUNCTION tasker.entry_documents(p_entries uuid[], p_budget bigint)
RETURNS TABLE (dlq_entry_uuid uuid, task_snapshot jsonb, metadata jsonb, resolution_notes text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    _d     record;
    _left  bigint := p_budget; -- for what is shown
    _work  bigint := p_budget; -- for what is measured, shown or not
    _bytes bigint;
    _path  text;
BEGIN
    FOR _d IN
        SELECT d.dlq_entry_uuid, d.task_snapshot, d.metadata, d.resolution_notes
        FROM unnest(p_entries) WITH ORDINALITY AS e (id, place)
        JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = e.id
        ORDER BY e.place
    LOOP
        dlq_entry_uuid := _d.dlq_entry_uuid;
        task_snapshot := _d.task_snapshot;
        metadata := _d.metadata;
        resolution_notes := _d.resolution_notes;
        _bytes := NULL;
        IF _work > 0 AND pg_column_size(task_snapshot) <= _left THEN
            _bytes := octet_length(task_snapshot::text) + coalesce(octet_length(metadata::text), 0) + coalesce(octet_length(resolution_notes), 0);
            _work := _work - _bytes;
        END IF;
        IF coalesce(_bytes <= _left, false) THEN
            _left := _left - _bytes;
        ELSE
            _path := '/v1/dlq/entry/' || dlq_entry_uuid;
            task_snapshot := tasker.omission(task_snapshot, _path);
            IF pg_column_size(metadata) > 500 THEN
                metadata := tasker.omission(metadata, _path);
            END IF;
            IF length(resolution_notes) > 500 THEN
                resolution_notes := left(resolution_notes, 500) || '…';
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION tasker.entry_documents(uuid[], bigint) IS 'What is large of investigations, as far as it fits into a budget of bytes.';
