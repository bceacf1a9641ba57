-- A row that the server cannot move forward, such as a task at which the sweep fails,
-- must not delay the others. It is recorded here and left alone until retry_at, so
-- that every server skips it and an operator can see it.

CREATE TABLE tasker.deferred_work (
    kind            text NOT NULL CONSTRAINT deferred_work_kind_is_short CHECK (length(kind) BETWEEN 1 AND 50),
    task_uuid       uuid NOT NULL,
    step_uuid       uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    failures        integer NOT NULL DEFAULT 1 CONSTRAINT deferred_work_failures_are_counted CHECK (failures > 0),
    last_error      text NOT NULL CONSTRAINT deferred_work_error_is_short CHECK (length(last_error) <= 1000),
    first_failed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_failed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    retry_at        timestamptz NOT NULL,
    PRIMARY KEY (kind, task_uuid, step_uuid)
);
COMMENT ON TABLE tasker.deferred_work IS 'Work of the server that failed and is tried again later: one row for each task or step and each kind of work. A success deletes the row.';
COMMENT ON COLUMN tasker.deferred_work.kind IS 'The loop that failed: sweep, or the name of a timer.';
COMMENT ON COLUMN tasker.deferred_work.step_uuid IS 'All zeros when the work concerns the whole task.';
COMMENT ON COLUMN tasker.deferred_work.failures IS 'Failures in a row.';
COMMENT ON COLUMN tasker.deferred_work.retry_at IS 'The work is skipped until then. The delay doubles with each failure, from a second to an hour.';

CREATE INDEX deferred_work_by_retry ON tasker.deferred_work (retry_at);
