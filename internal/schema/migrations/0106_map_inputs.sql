-- What the items of a map step are handed where it is not what their step would be handed: made once, with the items, so
-- that handing out an item does not read the list that the items are made of.
CREATE TABLE tasker.map_inputs (
    task_uuid     uuid NOT NULL,
    step_uuid     uuid NOT NULL,
    context       jsonb,
    context_bytes integer,
    omitted       text[],
    by_reference  uuid[],
    PRIMARY KEY (task_uuid, step_uuid)
);
COMMENT ON TABLE tasker.map_inputs IS 'What the items of a map step are handed without the list that they are made of; removed with its task. No row: they are handed what a step is.';
COMMENT ON COLUMN tasker.map_inputs.step_uuid IS 'The map step.';
COMMENT ON COLUMN tasker.map_inputs.context IS 'The context of the task without the list. Null: all of it is handed out.';
COMMENT ON COLUMN tasker.map_inputs.context_bytes IS 'Size of the context.';
COMMENT ON COLUMN tasker.map_inputs.omitted IS 'JSON Pointers of what the context is without.';
COMMENT ON COLUMN tasker.map_inputs.by_reference IS 'Steps with the list in their result, which is handed out by reference.';
