-- name: measureInputs
SELECT tasker.measure_inputs($1, $2, $3, $4);

-- name: tooLargeInputs
-- The subquery for the state keeps the planner from reading all enqueued steps.
SELECT s.task_uuid, s.step_uuid, s.fence, coalesce(t.context_bytes, octet_length(t.context::text))::bigint AS context_bytes, coalesce((
    SELECT sum(p.results_bytes)
    FROM tasker.workflow_steps p
    WHERE p.task_uuid = s.task_uuid AND p.step_uuid = ANY (s.parent_uuids)
), 0)::bigint AS results_bytes
FROM (SELECT 'enqueued' AS enqueued OFFSET 0) c
CROSS JOIN unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
WHERE s.state = c.enqueued AND s.inputs_bytes > 1073741824 /* MaxInputBytes */;

-- name: taskContext
SELECT t.context FROM tasker.tasks t WHERE t.task_uuid = $1;

-- name: stepResult
-- If the size of a document is not known, the document is measured. It is read only if it is small
-- enough.
SELECT z.name, z.bytes, CASE WHEN z.bytes <= $4 THEN z.results -> 'result' END AS document
FROM (
    SELECT s.name, s.results, coalesce(s.results_bytes, octet_length((s.results -> 'result')::text)) AS bytes
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = $1 AND (s.step_uuid = $2 OR s.name = $3)
    ORDER BY (s.step_uuid = $2) DESC
    LIMIT 1
) z;
