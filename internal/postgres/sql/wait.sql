-- name: stepsWithWaitOver
SELECT s.task_uuid, s.step_uuid
FROM tasker.workflow_steps s
WHERE s.wait_until <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = 'wait' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid)
ORDER BY s.wait_until, s.task_uuid, s.step_uuid
LIMIT $1;

-- name: waitsOver
SELECT s.task_uuid, s.step_uuid, t.template_uuid, s.name, s.fence, coalesce(s.timeout_ms, 0) AS timeout_ms
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
WHERE s.state = 'pending' AND s.wait_until <= now() AND t.state NOT IN ('pending', 'complete', 'cancelled')
ORDER BY s.task_uuid, s.step_uuid;

-- name: stepsToRemind
SELECT s.task_uuid, s.step_uuid
FROM tasker.workflow_steps s
WHERE s.remind_at <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = 'remind' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid)
ORDER BY s.remind_at, s.task_uuid, s.step_uuid
LIMIT $1;

-- name: remindedSteps
SELECT s.task_uuid, s.step_uuid, t.template_uuid, t.namespace, t.name AS task_name, s.name, s.remind_at, s.reminders, s.wait_until, coalesce(a.assignee, '') AS assignee, now() AS as_of
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
LEFT JOIN tasker.human_steps a ON a.task_uuid = s.task_uuid AND a.step_uuid = s.step_uuid
WHERE s.state = 'pending' AND s.remind_at <= now() AND t.state NOT IN ('pending', 'complete', 'cancelled')
ORDER BY s.task_uuid, s.step_uuid;

-- name: reminded
UPDATE tasker.workflow_steps s
SET reminders = u.reminders, remind_at = u.remind_at
FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::timestamptz[]) AS u (task_uuid, step_uuid, reminders, remind_at)
WHERE s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid AND s.state = 'pending' AND s.remind_at IS NOT NULL;
