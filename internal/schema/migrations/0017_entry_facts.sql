-- The queue of investigations shows one number of each snapshot, and decompressed the
-- whole snapshot for it. Entries from before have none: the view reads their snapshot.

ALTER TABLE tasker.tasks_dlq ADD COLUMN time_in_state_minutes numeric;
COMMENT ON COLUMN tasker.tasks_dlq.time_in_state_minutes IS 'What the snapshot says of it. Null: nothing, it is hidden, or the entry is of an earlier version.';

CREATE FUNCTION tasker.note_time_in_state() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF jsonb_typeof(NEW.task_snapshot -> 'time_in_state_minutes') = 'number' THEN
        NEW.time_in_state_minutes := (NEW.task_snapshot ->> 'time_in_state_minutes')::numeric;
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION tasker.note_time_in_state() IS 'Keeps beside an entry what lists need of its snapshot.';

CREATE TRIGGER entry_time_is_noted
    BEFORE INSERT ON tasker.tasks_dlq
    FOR EACH ROW EXECUTE FUNCTION tasker.note_time_in_state();
