-- The size of what a claim hands out, so that its answer has a bound without reading
-- the documents. Null means that the row was written by an older version; a claim
-- that comes across such a step has it measured.

ALTER TABLE tasker.tasks ADD COLUMN context_bytes integer;
COMMENT ON COLUMN tasker.tasks.context_bytes IS 'Size of the context as it is read back. Null: not measured.';
