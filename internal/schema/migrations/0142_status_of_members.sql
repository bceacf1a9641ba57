-- The investigations that ended are counted from the narrow rows of tasker.case_members.
ALTER TABLE tasker.case_members ADD COLUMN resolution_status tasker.dlq_resolution_status;
COMMENT ON COLUMN tasker.case_members.resolution_status IS 'How the investigation ended. Null while it is open, and when it ended before the column was added.';
