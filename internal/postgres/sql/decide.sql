-- name: stepsToDecide
-- $1 limit, $2 namespaces, $3 whether to select the steps in these namespaces or all others.
SELECT s.task_uuid, s.step_uuid
FROM tasker.workflow_steps s
WHERE s.decide_at <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = 'decide' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid)
  AND ($2::text[] = '{}' OR $3 = (SELECT t.namespace = ANY ($2) FROM tasker.tasks t WHERE t.task_uuid = s.task_uuid))
ORDER BY s.decide_at, s.task_uuid, s.step_uuid
LIMIT $1;

-- name: decidingSteps
SELECT s.task_uuid, s.step_uuid, s.name, s.fence, s.join_rule, t.template_uuid, t.namespace, t.priority, t.correlation_id, t.created_at, clock_timestamp() AS as_of,
    s.decided_at IS NOT NULL OR s.step_type = 'child' AND EXISTS (
        SELECT FROM tasker.tasks c WHERE c.parent_task_uuid = s.task_uuid AND c.parent_step_uuid = s.step_uuid
    ) AS again, s.child_task_uuid AS child, coalesce(t.depth, 0) AS depth,
    s.step_type, s.items_total, s.parents_open, coalesce((
        SELECT json_agg(json_build_object('name', p.name, 'state', p.state, 'retries', p.next_retry_at IS NOT NULL, 'decision', p.is_decision IS NOT NULL,
            'names', CASE WHEN p.is_decision THEN p.results -> 'goes_on' ? s.name END) ORDER BY p.step_uuid)
        FROM unnest(s.parent_uuids) WITH ORDINALITY AS u (step_uuid, place)
            CROSS JOIN LATERAL (
                SELECT step_uuid, name, state, next_retry_at, is_decision, results FROM tasker.workflow_steps q WHERE q.task_uuid = s.task_uuid AND q.step_uuid = u.step_uuid LIMIT 1
            ) p
    ), '[]') AS dependencies
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
WHERE s.state = 'pending' AND s.decide_at IS NOT NULL
ORDER BY s.task_uuid, s.step_uuid;

-- name: conditionValues
SELECT t.context, coalesce((
    SELECT json_object_agg(s.name, json_build_object('state', s.state, 'result', CASE WHEN s.total <= $3 THEN s.results -> 'result' END,
        'has_result', s.results ? 'result'))
    FROM (
        SELECT p.name, p.state, p.results, sum(coalesce(p.results_bytes, octet_length(p.results::text), 0)) OVER () AS total
        FROM tasker.workflow_steps p
        WHERE p.task_uuid = t.task_uuid AND p.name = ANY ($2::text[])
    ) s
), '{}') AS steps, coalesce((
    SELECT sum(coalesce(p.results_bytes, octet_length(p.results::text), 0))
    FROM tasker.workflow_steps p
    WHERE p.task_uuid = t.task_uuid AND p.name = ANY ($2::text[])
), 0) AS result_bytes
FROM tasker.tasks t
WHERE t.task_uuid = $1;

-- name: decisions
SELECT s.step_uuid, s.name, ARRAY(
    SELECT c.name FROM tasker.workflow_steps c WHERE c.task_uuid = s.task_uuid AND c.step_uuid = ANY (s.child_uuids) ORDER BY c.step_uuid
) AS dependents
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
WHERE s.is_decision;

-- name: postponeDecisions
UPDATE tasker.workflow_steps s
SET decide_at = NULL
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
WHERE s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.decide_at IS NOT NULL;
