ALTER TABLE tasker.emissions ADD COLUMN namespace text;
COMMENT ON COLUMN tasker.emissions.namespace IS 'The namespace of the task.';
CREATE TRIGGER emission_namespace_is_noted BEFORE INSERT ON tasker.emissions
    FOR EACH ROW WHEN (NEW.namespace IS NULL) EXECUTE FUNCTION tasker.note_namespace();
