-- name: stepLeases
SELECT s.task_uuid, s.step_uuid, s.state, s.fence, s.worker_uuid, s.reported_fence, s.report_digest
FROM tasker.workflow_steps s
JOIN unnest($1::uuid[], $2::uuid[]) AS l (task_uuid, step_uuid) USING (task_uuid, step_uuid);

-- name: reportedBody
SELECT coalesce(s.kept_report -> 'Body', CASE WHEN $4 THEN s.results ELSE s.error END) AS body
FROM tasker.workflow_steps s
WHERE s.task_uuid = $1 AND s.step_uuid = $2 AND s.reported_fence = $3;

-- name: lockStepLease
SELECT task_uuid, step_uuid, state, fence, worker_uuid, reported_fence, report_digest
FROM tasker.workflow_steps
WHERE task_uuid = $1 AND step_uuid = $2
FOR NO KEY UPDATE;

-- name: recordRejected
INSERT INTO tasker.rejected_reports (task_uuid, step_uuid, worker_uuid, fence, success, step_state, step_fence, message)
SELECT r.task_uuid, r.step_uuid, r.worker_uuid, r.fence, r.success, r.step_state, r.step_fence, r.message
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::bool[], $6::text[], $7::bigint[], $8::text[]) AS r (task_uuid, step_uuid, worker_uuid, fence, success, step_state, step_fence, message)
WHERE (
    SELECT count(*)
    FROM (SELECT FROM tasker.rejected_reports x WHERE x.task_uuid = r.task_uuid AND x.step_uuid = r.step_uuid LIMIT 100 /* MaxRejectedReports */) x
) < 100 /* MaxRejectedReports */;

-- name: begin
BEGIN;

-- name: commitReport
COMMIT;

-- name: rollback
ROLLBACK;
