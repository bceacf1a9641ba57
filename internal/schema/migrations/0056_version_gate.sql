-- An operation may say which workers take its steps. Claims look at one small table to know
-- that they have to ask of each step whether it is held, or for newer workers.

ALTER TABLE tasker.operations ADD COLUMN worker_at_least text;
COMMENT ON COLUMN tasker.operations.worker_at_least IS 'Only workers of this version or a newer one take the steps that it released. Null: any.';

CREATE TABLE tasker.claim_conditions (
    condition_uuid uuid PRIMARY KEY
);
COMMENT ON TABLE tasker.claim_conditions IS 'The holds that block, and the operations that say which workers take their steps, until the last of their items has ended. While there is none, claims ask of no step.';

CREATE FUNCTION tasker.follow_gate() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF NEW.settled_at IS NULL THEN
        INSERT INTO tasker.claim_conditions VALUES (NEW.operation_uuid) ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM tasker.claim_conditions WHERE condition_uuid = NEW.operation_uuid;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.follow_gate() IS 'Keeps tasker.claim_conditions as operations with a version of workers begin and end.';
CREATE TRIGGER follow_inserted_gate AFTER INSERT ON tasker.operations FOR EACH ROW
    WHEN (NEW.worker_at_least IS NOT NULL) EXECUTE FUNCTION tasker.follow_gate();
CREATE TRIGGER follow_settled_gate AFTER UPDATE OF settled_at ON tasker.operations FOR EACH ROW
    WHEN (NEW.worker_at_least IS NOT NULL) EXECUTE FUNCTION tasker.follow_gate();
