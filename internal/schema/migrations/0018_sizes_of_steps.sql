-- The sizes of 0015 for steps, in a transaction of its own: servers that run take
-- tasks and steps in any order.

ALTER TABLE tasker.workflow_steps
    ADD COLUMN results_bytes integer,
    ADD COLUMN inputs_bytes  bigint;

COMMENT ON COLUMN tasker.workflow_steps.results_bytes IS 'Size of the result (results -> ''result'') as it is read back. Null: not measured, or there is none.';
COMMENT ON COLUMN tasker.workflow_steps.inputs_bytes IS 'Size of what the step is handed out with: the context of its task and the results of those of its parents that are done. Null: not measured.';
