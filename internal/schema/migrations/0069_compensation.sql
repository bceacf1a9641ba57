-- A task that is given up can undo what its steps have done.
ALTER TABLE tasker.tasks ADD COLUMN phase text, ADD COLUMN outcome text;
COMMENT ON COLUMN tasker.tasks.phase IS 'compensating: the open task undoes what its steps have done. Null: it goes forward, or has ended.';
COMMENT ON COLUMN tasker.tasks.outcome IS 'Of a cancelled task that was to undo what it had done: compensated, compensation_stopped or nothing_to_compensate.';
INSERT INTO tasker.task_settle_paths (rest_from, rest_to, ordinal, event, from_state, to_state) VALUES
    ('pending', 'cancelled', 1, 'initialize', 'pending', 'initializing'),
    ('pending', 'cancelled', 2, 'evaluate', 'initializing', 'evaluating_results'),
    ('pending', 'cancelled', 3, 'finish_compensation', 'evaluating_results', 'cancelled'),
    ('steps_in_process', 'cancelled', 1, 'evaluate', 'steps_in_process', 'evaluating_results'),
    ('steps_in_process', 'cancelled', 2, 'finish_compensation', 'evaluating_results', 'cancelled'),
    ('waiting_for_retry', 'cancelled', 1, 'evaluate', 'waiting_for_retry', 'evaluating_results'),
    ('waiting_for_retry', 'cancelled', 2, 'finish_compensation', 'evaluating_results', 'cancelled'),
    ('waiting_for_dependencies', 'cancelled', 1, 'evaluate', 'waiting_for_dependencies', 'evaluating_results'),
    ('waiting_for_dependencies', 'cancelled', 2, 'finish_compensation', 'evaluating_results', 'cancelled'),
    ('error', 'cancelled', 1, 'evaluate', 'error', 'evaluating_results'),
    ('error', 'cancelled', 2, 'finish_compensation', 'evaluating_results', 'cancelled');
