-- create_dlq_entry opens an investigation of one task: see create_dlq_entries.
CREATE OR REPLACE FUNCTION tasker.create_dlq_entry(
    p_task_uuid      uuid,
    p_reason         tasker.dlq_reason,
    p_detail_code    text,
    p_detected_by    text,
    p_original_state text,
    p_state_since    timestamptz DEFAULT NULL,
    p_step_uuid      uuid DEFAULT NULL,
    p_actor          text DEFAULT 'tasker',
    p_notes          text DEFAULT NULL,
    p_metadata       jsonb DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN (
        SELECT e.dlq_entry_uuid
        FROM tasker.create_dlq_entries(ARRAY[p_task_uuid], ARRAY[p_reason], ARRAY[p_detail_code], p_detected_by,
            ARRAY[p_original_state], ARRAY[p_state_since], ARRAY[p_step_uuid], p_actor, p_notes, ARRAY[p_metadata]) e
    );
END
$$;
COMMENT ON FUNCTION tasker.create_dlq_entry(uuid, tasker.dlq_reason, text, text, text, timestamptz, uuid, text, text, jsonb) IS 'Opens an investigation of a task; null when one is open already.';
