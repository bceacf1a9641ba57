-- By when tasks and steps are due. In a table of its own: most have no due time, and the row of a step
-- is written with each move.
CREATE TABLE tasker.deadlines (
    task_uuid    uuid NOT NULL,
    step_uuid    uuid NOT NULL,
    namespace    text COLLATE "C" NOT NULL,
    due_at       timestamptz NOT NULL,
    warn_at      timestamptz NOT NULL,
    look_at      timestamptz NOT NULL,
    warn_s       integer,
    investigate  boolean NOT NULL,
    orders       boolean NOT NULL,
    source       text NOT NULL,
    set_by       text NOT NULL DEFAULT '',
    set_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    warned_at    timestamptz,
    announced_at timestamptz,
    ended_at     timestamptz,
    PRIMARY KEY (task_uuid, step_uuid),
    CONSTRAINT deadline_source_is_known CHECK (source IN ('request', 'template', 'operator')),
    CONSTRAINT deadline_that_is_asked_for_is_ahead CHECK (source = 'template' OR due_at > set_at),
    CONSTRAINT deadline_is_in_bounds CHECK (warn_at <= due_at AND due_at <= set_at + interval '1826 days' AND warn_s >= 0)
);
COMMENT ON TABLE tasker.deadlines IS 'By when tasks and steps are due. The row stays when the task has ended, and is removed with it.';
COMMENT ON COLUMN tasker.deadlines.step_uuid IS 'The step that is due; all zeros: the whole task is.';
COMMENT ON COLUMN tasker.deadlines.look_at IS 'When people are told next: of what is due soon, or overdue. Infinity: there is nothing to tell.';
COMMENT ON COLUMN tasker.deadlines.warn_s IS 'How long before people are told. Null: when four fifths of the time are over.';
COMMENT ON COLUMN tasker.deadlines.investigate IS 'The sweep opens an investigation once it is overdue.';
COMMENT ON COLUMN tasker.deadlines.orders IS 'Of steps of one priority the one that is due first is handed out first.';
COMMENT ON COLUMN tasker.deadlines.source IS 'Who said so last: the request, the template, or an operator.';
COMMENT ON COLUMN tasker.deadlines.warned_at IS 'When people were told that it is due soon. Null: they were not.';
COMMENT ON COLUMN tasker.deadlines.announced_at IS 'When people were told that it is overdue. Null: they were not.';
COMMENT ON COLUMN tasker.deadlines.ended_at IS 'When its task ended or was given up. Null: it has not.';
CREATE INDEX deadlines_to_look_at ON tasker.deadlines (look_at, task_uuid, step_uuid) WHERE look_at < 'infinity';
CREATE INDEX deadlines_of_open_tasks ON tasker.deadlines (namespace, due_at, task_uuid) WHERE ended_at IS NULL AND step_uuid = '00000000-0000-0000-0000-000000000000';
CREATE INDEX deadlines_to_investigate ON tasker.deadlines (due_at) WHERE ended_at IS NULL AND investigate;

CREATE TABLE tasker.due_queues (
    namespace text COLLATE "C" NOT NULL,
    handler   text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, handler)
);
COMMENT ON TABLE tasker.due_queues IS 'Queues in which a template has the steps that are due first come first. Claims of other queues do not look at due times.';

CREATE OR REPLACE FUNCTION tasker.end_task_options() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF OLD.state = 'pending' THEN
        DELETE FROM tasker.debounced_tasks x WHERE x.task_uuid = NEW.task_uuid;
    END IF;
    IF NEW.state IN ('complete', 'cancelled') THEN
        DELETE FROM tasker.task_starts x WHERE x.task_uuid = NEW.task_uuid;
        DELETE FROM tasker.unique_tasks x WHERE x.task_uuid = NEW.task_uuid;
        UPDATE tasker.deadlines x SET ended_at = clock_timestamp(), look_at = 'infinity' WHERE x.task_uuid = NEW.task_uuid;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION tasker.free_unique_key() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM tasker.unique_tasks x WHERE x.task_uuid = NEW.task_uuid;
    UPDATE tasker.deadlines x SET ended_at = clock_timestamp(), look_at = 'infinity' WHERE x.task_uuid = NEW.task_uuid;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.free_unique_key() IS 'Frees the unique key of a task that was given up, and ends its due times.';
