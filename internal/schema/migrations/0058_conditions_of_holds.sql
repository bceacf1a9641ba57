-- Holds that block are conditions of claims.

CREATE FUNCTION tasker.follow_hold() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF NEW.blocks THEN
        INSERT INTO tasker.claim_conditions VALUES (NEW.hold_uuid) ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM tasker.claim_conditions WHERE condition_uuid = NEW.hold_uuid;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.follow_hold() IS 'Keeps tasker.claim_conditions as holds begin and end.';
CREATE TRIGGER follow_inserted_hold AFTER INSERT ON tasker.holds FOR EACH ROW EXECUTE FUNCTION tasker.follow_hold();
CREATE TRIGGER follow_updated_hold AFTER UPDATE OF blocks ON tasker.holds FOR EACH ROW
    WHEN (NEW.blocks <> OLD.blocks) EXECUTE FUNCTION tasker.follow_hold();
