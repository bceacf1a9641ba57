-- max_snapshot_bytes bounds the snapshot of an investigation, as text. A test compares
-- it with tasker.MaxSnapshotBytes.
CREATE OR REPLACE FUNCTION tasker.max_snapshot_bytes() RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT 4194304
$$;
COMMENT ON FUNCTION tasker.max_snapshot_bytes() IS 'The most bytes that the snapshot of an investigation has as text.';
