-- A step of type map may say how many of its items are under way at once.
ALTER TABLE tasker.workflow_steps
    ADD COLUMN items_limit integer,
    ADD COLUMN items_free  integer,
    ADD COLUMN item_next   integer;
COMMENT ON COLUMN tasker.workflow_steps.items_limit IS 'Of a step of type map: how many of its items are under way at once. Null: all.';
COMMENT ON COLUMN tasker.workflow_steps.items_free IS 'Of a step of type map with a limit: how many more may be under way.';
COMMENT ON COLUMN tasker.workflow_steps.item_next IS 'Of a step of type map with a limit: no item with a lower ordinal waits for a place.';
