-- A task is cancelled by itself when what it has done is undone.
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
