-- A step of type map has an item for each element of a list; the items are steps of their own.
ALTER TABLE tasker.workflow_steps
    ADD COLUMN map_step_uuid uuid,
    ADD COLUMN item_ordinal  integer,
    ADD COLUMN item          jsonb,
    ADD COLUMN items_total   integer,
    DROP CONSTRAINT step_parents_open_is_a_count,
    ADD CONSTRAINT step_parents_open_counts CHECK (parents_open >= 0 AND parents_open <= greatest(cardinality(parent_uuids), items_total, num_nonnulls(map_step_uuid))) NOT VALID,
    ADD CONSTRAINT step_item_is_whole CHECK (num_nonnulls(map_step_uuid, item_ordinal, item) IN (0, 3) AND coalesce(item_ordinal, 0) >= 0) NOT VALID,
    ADD CONSTRAINT step_settings_are_those_of_its_type CHECK (
        step_type IN ('standard', 'external', 'wait', 'child', 'map') AND backoff IN ('exponential', 'linear', 'constant') AND coalesce(queue_ttl_ms, 1) > 0
    ) NOT VALID,
    DROP CONSTRAINT step_settings_are_right;
COMMENT ON COLUMN tasker.workflow_steps.map_step_uuid IS 'Of an item: the step of type map that it belongs to.';
COMMENT ON COLUMN tasker.workflow_steps.item_ordinal IS 'Of an item: its place among the items of its step, from 0.';
COMMENT ON COLUMN tasker.workflow_steps.item IS 'Of an item: what its handler is given, an element of the list or several.';
COMMENT ON COLUMN tasker.workflow_steps.items_total IS 'Of a step of type map: how many items it has. Null: it has none yet.';
COMMENT ON COLUMN tasker.workflow_steps.parents_open IS 'Parents that are not yet complete, resolved by hand or skipped. Of a step whose join_rule is any, at least the true number. Of a step of type map that has its items: the items that are not.';
