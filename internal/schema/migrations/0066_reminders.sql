-- People are reminded of external steps that wait for an answer.
ALTER TABLE tasker.workflow_steps
    ADD COLUMN remind_first_s int,
    ADD COLUMN reminders int NOT NULL DEFAULT 0,
    ADD COLUMN remind_at timestamptz;
COMMENT ON COLUMN tasker.workflow_steps.remind_first_s IS 'After how many seconds of its wait people are first reminded of the step. Null: they are not.';
COMMENT ON COLUMN tasker.workflow_steps.reminders IS 'How often people were reminded of the step in this wait.';
COMMENT ON COLUMN tasker.workflow_steps.remind_at IS 'When people are next reminded of a pending step. Null: it does not wait yet, or they are not reminded again.';
