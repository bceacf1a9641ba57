-- name: selectFailedSteps
-- The recorded step is read by key. The other steps of its open task are read only if it has not
-- failed.
SELECT u.place, f.step_uuid AS uuid, f.name, f.state_since AS since
FROM unnest($1::uuid[], $2::uuid[]) WITH ORDINALITY AS u (task_uuid, step_uuid, place)
JOIN tasker.tasks t ON t.task_uuid = u.task_uuid AND t.state NOT IN ('complete', 'cancelled')
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM tasker.workflow_steps s
        WHERE s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid AND s.state = 'error' AND s.next_retry_at IS NULL
    ) AS failed
    OFFSET 0
) own
CROSS JOIN LATERAL (
    SELECT s.step_uuid, s.name, s.state_since
    FROM tasker.workflow_steps s
    WHERE own.failed AND s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
    UNION ALL (
        SELECT s.step_uuid, s.name, s.state_since
        FROM tasker.workflow_steps s
        WHERE NOT own.failed AND s.task_uuid = u.task_uuid AND s.state = 'error' AND s.next_retry_at IS NULL
        ORDER BY s.state_since DESC, s.step_uuid
        LIMIT 1
    )
) f;
