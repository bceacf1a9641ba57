-- Who is to answer external steps, and since when they wait for that: the inbox of people. It is in a table of its own: most
-- steps have no assignee, and the row of a step is written with each move.
CREATE TABLE tasker.human_steps (
    task_uuid     uuid NOT NULL,
    step_uuid     uuid NOT NULL,
    namespace     text COLLATE "C" NOT NULL,
    task_name     text COLLATE "C" NOT NULL,
    step_name     text NOT NULL,
    assignee      text COLLATE "C" NOT NULL DEFAULT '',
    assigned_by   text NOT NULL DEFAULT '',
    assigned_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    waiting       boolean NOT NULL DEFAULT true,
    waiting_since timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at        timestamptz NOT NULL DEFAULT 'infinity',
    escalated_at  timestamptz,
    PRIMARY KEY (task_uuid, step_uuid)
);
COMMENT ON TABLE tasker.human_steps IS 'External steps that people answer: who, and whether they wait. A row stays when its step has ended, and is removed with its task.';
COMMENT ON COLUMN tasker.human_steps.task_name IS 'The name of the template.';
COMMENT ON COLUMN tasker.human_steps.assignee IS 'A person, or group: and a group. Empty: nobody in particular.';
COMMENT ON COLUMN tasker.human_steps.assigned_by IS 'Who said so. Empty: the template of the task.';
COMMENT ON COLUMN tasker.human_steps.waiting IS 'The step waits for an answer.';
COMMENT ON COLUMN tasker.human_steps.due_at IS 'The timeout of the wait; infinity: it has none.';
COMMENT ON COLUMN tasker.human_steps.escalated_at IS 'When escalate_to of the template became the assignee in this wait. Null: it did not.';
CREATE INDEX inbox_by_namespace ON tasker.human_steps (namespace, due_at, step_uuid) WHERE waiting;
CREATE INDEX inbox_by_template ON tasker.human_steps (namespace, task_name, due_at, step_uuid) WHERE waiting;
CREATE INDEX inbox_by_assignee ON tasker.human_steps (namespace, assignee, due_at, step_uuid) WHERE waiting;
CREATE INDEX inbox_by_assignee_and_template ON tasker.human_steps (namespace, assignee, task_name, due_at, step_uuid) WHERE waiting;
