-- The size of what a claim hands out, so that its answer has a bound without reading
-- the documents. Null means that the row was written by an older version; a claim
-- that comes across such a step has it measured.

-- Servers run meanwhile: both locks are taken before anything waits for one of them.
LOCK TABLE tasker.tasks, tasker.workflow_steps IN ACCESS EXCLUSIVE MODE;
ALTER TABLE tasker.tasks ADD COLUMN context_bytes integer;
ALTER TABLE tasker.workflow_steps
    ADD COLUMN results_bytes integer,
    ADD COLUMN inputs_bytes  bigint;

COMMENT ON COLUMN tasker.tasks.context_bytes IS 'Size of the context as it is read back. Null: not measured.';
COMMENT ON COLUMN tasker.workflow_steps.results_bytes IS 'Size of the result (results -> ''result'') as it is read back. Null: not measured, or there is none.';
COMMENT ON COLUMN tasker.workflow_steps.inputs_bytes IS 'Size of what the step is handed out with: the context of its task and the results of those of its parents that are done. Null: not measured.';
