-- A row that ends an attempt has its first moves as well; the view of the old name, which
-- servers of the previous version read and write, has a row for each move.

ALTER TABLE tasker.workflow_step_transitions RENAME TO step_history;
ALTER TABLE tasker.step_history
    ADD COLUMN moves_id bigint,
    ADD COLUMN enqueued_at timestamptz,
    ADD COLUMN claimed_at timestamptz,
    ALTER COLUMN transition_id SET INCREMENT BY 2;
ALTER INDEX tasker.workflow_step_transitions_pkey RENAME TO step_history_pkey;
ALTER SEQUENCE tasker.workflow_step_transitions_transition_id_seq RENAME TO step_history_transition_id_seq;

COMMENT ON TABLE tasker.step_history IS 'History of the steps, append-only: read it as tasker.workflow_step_transitions. A row is a move, and may have the enqueue and the claim before it. A failure''s error is in detail.';
COMMENT ON COLUMN tasker.step_history.moves_id IS 'The transition_id of the enqueue that this row has; that of the claim is the next.';
COMMENT ON COLUMN tasker.step_history.enqueued_at IS 'When the attempt was enqueued, if no other row has that.';
COMMENT ON COLUMN tasker.step_history.claimed_at IS 'When it was claimed, if no other row has that.';

-- Servers of the previous version write moves into the view, and delete those of old tasks: a row goes with all the moves it has.
CREATE FUNCTION tasker.write_step_history() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM tasker.step_history h WHERE h.task_uuid = OLD.task_uuid AND h.transition_id = OLD.transition_id;
        RETURN OLD;
    END IF;
    INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, actor, reason, detail, created_at)
    VALUES (NEW.task_uuid, NEW.step_uuid, NEW.from_state, NEW.to_state, NEW.event, NEW.attempt, NEW.worker_uuid, NEW.actor, NEW.reason, NEW.detail, NEW.created_at)
    RETURNING transition_id INTO NEW.transition_id;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION tasker.write_step_history() IS 'Writes into tasker.step_history what is written into its view.';

-- As of this migration: views/workflow_step_transitions.sql replaces it.
CREATE VIEW tasker.workflow_step_transitions AS
SELECT h.task_uuid, h.transition_id, h.step_uuid, h.from_state, h.to_state, h.event, h.attempt, h.worker_uuid, h.actor, h.reason, h.detail, h.created_at
FROM tasker.step_history h
UNION ALL
SELECT h.task_uuid, h.moves_id, h.step_uuid, 'pending', 'enqueued', 'enqueue', h.attempt, NULL, NULL, NULL, NULL, h.enqueued_at
FROM tasker.step_history h
WHERE h.enqueued_at IS NOT NULL
UNION ALL
SELECT h.task_uuid, h.moves_id + 1, h.step_uuid, 'enqueued', 'in_progress', 'claim', h.attempt, h.worker_uuid, NULL, NULL, NULL, h.claimed_at
FROM tasker.step_history h
WHERE h.claimed_at IS NOT NULL
UNION ALL
SELECT s.task_uuid, s.moves_id, s.step_uuid, 'pending', 'enqueued', 'enqueue', s.attempts, NULL, NULL, NULL, NULL,
    CASE WHEN s.unwritten = 1 THEN s.state_since ELSE s.enqueued_at END
FROM tasker.workflow_steps s
WHERE s.unwritten IN (1, 3)
UNION ALL
SELECT s.task_uuid, s.moves_id + 1, s.step_uuid, 'enqueued', 'in_progress', 'claim', s.attempts, s.worker_uuid, NULL, NULL, NULL, s.last_attempted_at
FROM tasker.workflow_steps s
WHERE s.unwritten IN (2, 3);
COMMENT ON VIEW tasker.workflow_step_transitions IS 'History of the steps, a row for each move: contiguous and legal for each step, starting from pending. A failure''s error is in detail.';

CREATE TRIGGER write_step_history INSTEAD OF INSERT OR DELETE ON tasker.workflow_step_transitions
    FOR EACH ROW EXECUTE FUNCTION tasker.write_step_history();
