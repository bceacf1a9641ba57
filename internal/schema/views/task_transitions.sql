-- Every move of the tasks: contiguous and legal for each task, starting from pending. A row
-- without an event is a path.
CREATE OR REPLACE VIEW tasker.task_transitions AS
SELECT h.task_uuid, h.transition_id + coalesce(p.ordinal - 1, 0) AS transition_id,
    coalesce(p.from_state, h.from_state) AS from_state, coalesce(p.to_state, h.to_state) AS to_state, coalesce(p.event, h.event) AS event,
    h.actor, h.reason, h.detail, h.created_at
FROM tasker.task_history h
LEFT JOIN tasker.task_settle_paths p ON h.event IS NULL AND p.rest_from = h.from_state AND p.rest_to = h.to_state;
COMMENT ON VIEW tasker.task_transitions IS 'History of the tasks, a row for each move: contiguous and legal for each task, starting from pending.';
