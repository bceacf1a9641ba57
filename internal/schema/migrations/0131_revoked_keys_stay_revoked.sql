-- The role of a server may end access, and not give it again.

CREATE FUNCTION tasker.refuse_restored_access() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '% that has ended stays ended', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END
$$;
COMMENT ON FUNCTION tasker.refuse_restored_access() IS 'Refuses an update that would give access again that was taken away or used up.';

CREATE TRIGGER revoked_key_stays_revoked BEFORE UPDATE ON tasker.api_keys
    FOR EACH ROW WHEN (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS NULL)
    EXECUTE FUNCTION tasker.refuse_restored_access('a key');
