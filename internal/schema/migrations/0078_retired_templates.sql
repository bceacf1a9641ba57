-- A version of a template that is retired gets no new tasks.
ALTER TABLE tasker.task_templates
    ADD COLUMN retired_at timestamptz,
    ADD COLUMN retired_by text,
    ADD COLUMN retired_reason text;
COMMENT ON COLUMN tasker.task_templates.retired_at IS 'Since when no new tasks are made of this version. Null: they are.';
COMMENT ON COLUMN tasker.task_templates.retired_by IS 'Who retired it.';
COMMENT ON COLUMN tasker.task_templates.retired_reason IS 'Why.';
