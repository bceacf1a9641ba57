-- A task in error that nobody looks into is found by a stored instant, however it
-- came there: the row itself notices, so that no code path is the only one.

ALTER TABLE tasker.staleness_thresholds
    ADD COLUMN error_recovery_minutes integer NOT NULL DEFAULT 60,
    ADD CONSTRAINT staleness_recovery_is_positive CHECK (error_recovery_minutes > 0);
COMMENT ON COLUMN tasker.staleness_thresholds.error_recovery_minutes IS 'How long a task may stand in error without an investigation.';

ALTER TABLE tasker.tasks ADD COLUMN attend_by timestamptz;
COMMENT ON COLUMN tasker.tasks.attend_by IS 'Instant from which a task in error needs an investigation if it has none. Null when it has one, or is not in error.';
CREATE INDEX tasks_unattended ON tasker.tasks (attend_by) WHERE attend_by IS NOT NULL;

CREATE FUNCTION tasker.watch_task_in_error() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    NEW.attend_by := CASE WHEN NEW.state = 'error' THEN clock_timestamp() + (
        SELECT make_interval(mins => st.error_recovery_minutes) FROM tasker.staleness_thresholds st WHERE st.only_row
    ) END;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION tasker.watch_task_in_error() IS 'Sets the instant from which a task in error needs an investigation.';

CREATE TRIGGER task_made_in_error_is_watched
    BEFORE INSERT ON tasker.tasks
    FOR EACH ROW WHEN (NEW.state = 'error')
    EXECUTE FUNCTION tasker.watch_task_in_error();
CREATE TRIGGER task_in_error_is_watched
    BEFORE UPDATE OF state ON tasker.tasks
    FOR EACH ROW WHEN (OLD.state <> NEW.state AND 'error' IN (OLD.state, NEW.state))
    EXECUTE FUNCTION tasker.watch_task_in_error();

UPDATE tasker.tasks t
SET attend_by = t.state_since + interval '60 minutes'
WHERE t.state = 'error'
  AND NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid AND d.dlq_timestamp >= t.state_since);
