-- While an attempt is under way, its first moves are kept in the row of the step; they come
-- into the history with the one that ends it. So a step that succeeds has one row of history.

ALTER TABLE tasker.workflow_steps
    ADD COLUMN unwritten smallint NOT NULL DEFAULT 0,
    ADD COLUMN moves_id bigint,
    ADD COLUMN enqueued_at timestamptz;

COMMENT ON COLUMN tasker.workflow_steps.unwritten IS 'Which moves of the attempt that is under way the history does not have yet: 1 enqueue, 2 claim, 3 both. Negative: those that came with the row that ended it.';
COMMENT ON COLUMN tasker.workflow_steps.moves_id IS 'The transition_id of that enqueue; that of the claim is the next.';
COMMENT ON COLUMN tasker.workflow_steps.enqueued_at IS 'When that enqueue was, of a step that is claimed. While it is enqueued it is state_since.';

-- For moves by statements that do not write what is unwritten: those of servers of earlier
-- versions, by hand, and those of ours that are rare. Afterwards, because a trigger before
-- an update locks each row that is updated, whether its condition is true or not.
CREATE FUNCTION tasker.write_moves() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO tasker.step_history (task_uuid, transition_id, step_uuid, from_state, to_state, event, attempt, worker_uuid, created_at)
    OVERRIDING SYSTEM VALUE
    SELECT OLD.task_uuid, m.transition_id, OLD.step_uuid, m.from_state, m.to_state, m.event, OLD.attempts, m.worker_uuid, m.created_at
    FROM (VALUES
        (1, OLD.moves_id, 'pending', 'enqueued', 'enqueue', NULL, CASE WHEN OLD.unwritten = 1 THEN OLD.state_since ELSE OLD.enqueued_at END),
        (2, OLD.moves_id + 1, 'enqueued', 'in_progress', 'claim', OLD.worker_uuid, OLD.last_attempted_at)
    ) AS m (bit, transition_id, from_state, to_state, event, worker_uuid, created_at)
    WHERE OLD.unwritten & m.bit <> 0;
    UPDATE tasker.workflow_steps s SET unwritten = 0 WHERE s.task_uuid = NEW.task_uuid AND s.step_uuid = NEW.step_uuid;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.write_moves() IS 'Writes the unwritten moves of a step into tasker.step_history when it moves on.';

CREATE TRIGGER write_moves AFTER UPDATE ON tasker.workflow_steps FOR EACH ROW
    WHEN (OLD.unwritten > 0 AND NEW.unwritten = OLD.unwritten AND NEW.state <> OLD.state)
    EXECUTE FUNCTION tasker.write_moves();
