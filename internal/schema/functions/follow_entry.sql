-- follow_entry copies the end of an investigation to its row in case_members.
CREATE OR REPLACE FUNCTION tasker.follow_entry() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE tasker.case_members
    SET ended_at = NEW.resolved_at, recovered_at = NEW.recovered_at, resolution_status = nullif(NEW.resolution_status, 'pending')
    WHERE dlq_entry_uuid = NEW.dlq_entry_uuid;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.follow_entry() IS 'Has the row in tasker.case_members follow its investigation.';
