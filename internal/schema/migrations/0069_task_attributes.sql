-- What tasks are found by: a row for each tag and each other word or value of a task that
-- is searched for. One table with few indexes instead of an index on tasks for each of
-- them, which every move of every task would write.
CREATE TABLE tasker.task_attributes (
    task_uuid    uuid NOT NULL, -- without a foreign key: its check would be part of each creation
    namespace    text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    text_value   text COLLATE "C",
    number_value numeric,
    time_value   timestamptz,
    CONSTRAINT attribute_has_one_value CHECK (num_nonnulls(text_value, number_value, time_value) = 1)
);
CREATE INDEX task_attributes_of_task ON tasker.task_attributes (task_uuid);
-- NULLS FIRST, although there are none, so that no other index has the order of a page of tasks:
-- the planner would rather go through the attributes of all tasks, newest first.
CREATE INDEX task_attributes_by_text ON tasker.task_attributes (namespace, name, text_value, task_uuid NULLS FIRST) WHERE text_value IS NOT NULL;
CREATE INDEX task_attributes_by_number ON tasker.task_attributes (namespace, name, number_value, task_uuid NULLS FIRST) WHERE number_value IS NOT NULL;
CREATE INDEX task_attributes_by_time ON tasker.task_attributes (namespace, name, time_value, task_uuid NULLS FIRST) WHERE time_value IS NOT NULL;
COMMENT ON TABLE tasker.task_attributes IS 'What tasks are found by: a row for each tag, for the correlation id, initiator and source system that a task was given, and for each attribute that its template declares.';
COMMENT ON COLUMN tasker.task_attributes.name IS 'tag, correlation_id, initiator or source_system, or the name of an attribute that a template declares.';
COMMENT ON COLUMN tasker.task_attributes.text_value IS 'Of a text; true or false of a bool.';
