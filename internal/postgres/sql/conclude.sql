-- name: pendingReports
-- The expression on state keeps the planner from reading all pending reports.
SELECT s.task_uuid, s.step_uuid, s.fence, s.kept_report AS report
FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
WHERE s.state || '' = 'enqueued_for_orchestration';
