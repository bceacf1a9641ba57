-- task_snapshot is the picture of one task: see task_snapshots.
CREATE OR REPLACE FUNCTION tasker.task_snapshot(
    p_task_uuid      uuid,
    p_original_state text,
    p_state_since    timestamptz,
    p_detected_by    text,
    p_at             timestamptz
) RETURNS jsonb
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT s.snapshot
        FROM tasker.task_snapshots(ARRAY[p_task_uuid], ARRAY[p_original_state], ARRAY[p_state_since], p_detected_by, p_at) s
    );
END
$$;
COMMENT ON FUNCTION tasker.task_snapshot(uuid, text, timestamptz, text, timestamptz) IS 'The picture of one task that an investigation keeps.';
