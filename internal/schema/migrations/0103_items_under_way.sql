-- A report of an item looks for another one that is under way where one was last.
ALTER TABLE tasker.workflow_steps ADD COLUMN item_under_way integer;
COMMENT ON COLUMN tasker.workflow_steps.item_under_way IS 'Of a step of type map: the ordinal at which an item was last found enqueued or in progress, or from which one is sought downwards. Null: from the last one. It may be out of date.';
