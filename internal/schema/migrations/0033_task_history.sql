-- A row of a task's history is a path from one state in which it rests to another; the view of
-- the old name, which servers of the previous version read and write, has a row for each move.

ALTER TABLE tasker.task_transitions RENAME TO task_history;
ALTER TABLE tasker.task_history
    ALTER COLUMN event DROP NOT NULL,
    ALTER COLUMN transition_id SET INCREMENT BY 8;
ALTER INDEX tasker.task_transitions_pkey RENAME TO task_history_pkey;
ALTER SEQUENCE tasker.task_transitions_transition_id_seq RENAME TO task_history_transition_id_seq;

COMMENT ON TABLE tasker.task_history IS 'History of the tasks, append-only: read it as tasker.task_transitions.';
COMMENT ON COLUMN tasker.task_history.event IS 'Null: the row is the whole path from from_state to to_state in tasker.task_settle_paths.';

-- Servers of the previous version write moves into the view, and delete those of old tasks: a row goes with all the moves it has.
CREATE FUNCTION tasker.write_task_history() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM tasker.task_history h WHERE h.task_uuid = OLD.task_uuid AND h.transition_id = OLD.transition_id;
        RETURN OLD;
    END IF;
    INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, actor, reason, detail, created_at)
    VALUES (NEW.task_uuid, NEW.from_state, NEW.to_state, NEW.event, NEW.actor, NEW.reason, NEW.detail, NEW.created_at)
    RETURNING transition_id INTO NEW.transition_id;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION tasker.write_task_history() IS 'Writes into tasker.task_history what is written into its view.';

-- As of this migration: views/task_transitions.sql replaces it.
CREATE VIEW tasker.task_transitions AS
SELECT h.task_uuid, h.transition_id + coalesce(p.ordinal - 1, 0) AS transition_id,
    coalesce(p.from_state, h.from_state) AS from_state, coalesce(p.to_state, h.to_state) AS to_state, coalesce(p.event, h.event) AS event,
    h.actor, h.reason, h.detail, h.created_at
FROM tasker.task_history h
LEFT JOIN tasker.task_settle_paths p ON h.event IS NULL AND p.rest_from = h.from_state AND p.rest_to = h.to_state;
COMMENT ON VIEW tasker.task_transitions IS 'History of the tasks, a row for each move: contiguous and legal for each task, starting from pending.';

CREATE TRIGGER write_task_history INSTEAD OF INSERT OR DELETE ON tasker.task_transitions
    FOR EACH ROW EXECUTE FUNCTION tasker.write_task_history();
