-- name: countTasksInState
SELECT count(*) FROM (
    SELECT FROM tasker.tasks t WHERE t.state BETWEEN $1 AND $1 ORDER BY t.state, t.task_uuid DESC LIMIT $2
) x;
