CREATE TABLE tasker.human_step_history (
    change_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_uuid  uuid NOT NULL,
    step_uuid  uuid NOT NULL,
    event      text NOT NULL,
    actor      text NOT NULL,
    reason     text NOT NULL DEFAULT '',
    assignee   text NOT NULL DEFAULT '',
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT human_step_event_is_known CHECK (event IN ('assigned', 'unassigned', 'escalated'))
);
COMMENT ON TABLE tasker.human_step_history IS 'Who gave an external step another assignee. Removed with its task.';
COMMENT ON COLUMN tasker.human_step_history.assignee IS 'Who was to answer from then on.';
CREATE INDEX human_step_history_of_step ON tasker.human_step_history (task_uuid, step_uuid, change_id);
