-- What a worker has said of how far an attempt has come, for the attempt after it. It is in a table of its own: the row of a
-- step is written with each move, and most steps have none.
CREATE TABLE tasker.step_checkpoints (
    task_uuid uuid NOT NULL,
    step_uuid uuid NOT NULL,
    value     jsonb NOT NULL,
    bytes     integer NOT NULL,
    attempt   integer NOT NULL,
    saved_at  timestamptz NOT NULL,
    PRIMARY KEY (task_uuid, step_uuid)
);
COMMENT ON TABLE tasker.step_checkpoints IS 'The last checkpoint of each step whose workers save any: handed out with the attempts that follow, removed with its task.';
COMMENT ON COLUMN tasker.step_checkpoints.bytes IS 'Size of the value.';
COMMENT ON COLUMN tasker.step_checkpoints.attempt IS 'The attempt that saved it.';
ALTER TABLE tasker.workflow_steps ADD COLUMN checkpointed boolean;
COMMENT ON COLUMN tasker.workflow_steps.checkpointed IS 'Whether it has a row of step_checkpoints. Null: it has none.';
