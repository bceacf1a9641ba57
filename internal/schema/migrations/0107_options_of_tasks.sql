-- Tasks may be bound by options of their start: how they are is kept for those that have any, and
-- what the clock has to do about them in tables of their own. The trigger is for those alone.
CREATE TABLE tasker.task_starts (
    task_uuid uuid PRIMARY KEY,
    start_by  timestamptz NOT NULL
);
COMMENT ON TABLE tasker.task_starts IS 'Open tasks that end as expired unless a step of them is claimed by an instant. The row goes when the task has ended, or when that instant finds a step claimed.';
CREATE INDEX task_starts_by_time ON tasker.task_starts (start_by);

ALTER TABLE tasker.tasks ADD COLUMN options jsonb;
COMMENT ON COLUMN tasker.tasks.options IS 'What the task was created with beyond its request, such as start_by, as it is shown. Null: nothing.';

CREATE FUNCTION tasker.end_task_options() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM tasker.task_starts x WHERE x.task_uuid = NEW.task_uuid;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.end_task_options() IS 'Removes what a task that has ended was bound by, also where a server of the previous version ends it.';
CREATE TRIGGER task_options_end
    AFTER UPDATE OF state ON tasker.tasks
    FOR EACH ROW WHEN (NEW.options IS NOT NULL AND NEW.state IN ('complete', 'cancelled') AND OLD.state <> NEW.state)
    EXECUTE FUNCTION tasker.end_task_options();
