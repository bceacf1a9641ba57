-- name: lockTasks
-- Tasks are locked in key order. The lock is not FOR UPDATE, because updates of child rows take key
-- shares.
SELECT task_uuid FROM tasker.tasks WHERE task_uuid = ANY ($1) ORDER BY task_uuid FOR NO KEY UPDATE;

-- name: lockFreeTasks
SELECT task_uuid FROM tasker.tasks WHERE task_uuid = ANY ($1) ORDER BY task_uuid FOR NO KEY UPDATE SKIP LOCKED;
