-- A step may start a task of another template and wait for it.

ALTER TABLE tasker.tasks
    ADD COLUMN parent_task_uuid uuid,
    ADD COLUMN parent_step_uuid uuid,
    ADD COLUMN depth            smallint;
COMMENT ON COLUMN tasker.tasks.parent_task_uuid IS 'The task whose step started this one. It may have been removed since. Null: no task did.';
COMMENT ON COLUMN tasker.tasks.parent_step_uuid IS 'The step of that task.';
COMMENT ON COLUMN tasker.tasks.depth IS 'How many tasks are above it. Null: none.';

-- What a task has to tell another one: neither locks the other, so it is left here.
CREATE TABLE tasker.child_signals (
    kind             text NOT NULL,
    child_uuid       uuid NOT NULL,
    parent_task_uuid uuid NOT NULL,
    parent_step_uuid uuid NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (kind, child_uuid),
    CONSTRAINT child_signal_is_known CHECK (kind IN ('ended', 'cancel'))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX child_signals_by_time ON tasker.child_signals (kind, created_at);
CREATE INDEX child_signals_of_step ON tasker.child_signals (parent_step_uuid);
COMMENT ON TABLE tasker.child_signals IS 'What child tasks and the steps that started them have to tell each other: left by the transaction that causes it, removed by the one that does it.';
COMMENT ON COLUMN tasker.child_signals.kind IS 'ended: the child has come to its end, which its parent step has to be told. cancel: nobody waits for the child any more, so it is to be cancelled.';

CREATE FUNCTION tasker.follow_child_task() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF NEW.parent_step_uuid IS NOT NULL THEN
        INSERT INTO tasker.child_signals (kind, child_uuid, parent_task_uuid, parent_step_uuid)
        VALUES ('ended', NEW.task_uuid, NEW.parent_task_uuid, NEW.parent_step_uuid)
        ON CONFLICT DO NOTHING;
    END IF;
    IF NEW.state = 'cancelled' THEN
        INSERT INTO tasker.child_signals (kind, child_uuid, parent_task_uuid, parent_step_uuid)
        SELECT 'cancel', c.task_uuid, c.parent_task_uuid, c.parent_step_uuid
        FROM tasker.tasks c
        WHERE c.parent_task_uuid = NEW.task_uuid AND c.state NOT IN ('complete', 'cancelled')
          AND NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed')
        ORDER BY c.task_uuid
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.follow_child_task() IS 'Leaves word that a child task has ended, and that the children of a cancelled task are to be cancelled.';
CREATE TRIGGER child_task_is_followed
    AFTER UPDATE OF state ON tasker.tasks
    FOR EACH ROW WHEN (NEW.state IN ('complete', 'cancelled') AND OLD.state <> NEW.state AND (NEW.state = 'cancelled' OR NEW.parent_step_uuid IS NOT NULL))
    EXECUTE FUNCTION tasker.follow_child_task();
