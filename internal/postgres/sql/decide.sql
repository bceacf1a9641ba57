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

-- name: runDecided
-- Steps without a handler stay pending and begin to wait.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
moved AS (
    UPDATE tasker.workflow_steps s
    SET decide_at = NULL, decided_at = c.at, updated_at = c.at, wait_until = coalesce(d.wait_until, CASE WHEN s.step_type NOT IN ('standard', 'map') THEN c.at + interval '1 millisecond' * s.timeout_ms END), remind_at = c.at + interval '1 second' * s.remind_first_s,
        state = CASE WHEN s.step_type = 'standard' THEN 'enqueued' ELSE s.state END,
        state_since = c.at,
        attempts = s.attempts + CASE WHEN s.step_type = 'standard' THEN 1 ELSE 0 END,
        expires_at = CASE WHEN s.step_type = 'standard' THEN c.at + interval '1 millisecond' * coalesce(s.queue_ttl_ms, $3) END
    FROM unnest($1::uuid[], $2::uuid[], $5::timestamptz[]) AS d (task_uuid, step_uuid, wait_until)
    CROSS JOIN clock c
    WHERE s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.state = 'pending' AND s.decide_at IS NOT NULL
    RETURNING s.namespace, s.handler, s.priority, s.state_since, s.step_uuid, s.task_uuid, s.expires_at, s.queue_ttl_ms, s.inputs_bytes, s.attempts, s.state
),
ready AS (
    INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, due_at)
    SELECT namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, (
        SELECT min(o.due_at) FROM tasker.deadlines o
        WHERE o.task_uuid = e.task_uuid AND o.step_uuid IN ('00000000-0000-0000-0000-000000000000', e.step_uuid) AND o.orders
    ) FROM (SELECT * FROM moved WHERE state = 'enqueued') e
),
log AS (
    INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, created_at)
    SELECT task_uuid, step_uuid, 'pending', 'enqueued', 'enqueue', attempts, state_since
    FROM moved
    WHERE state = 'enqueued'
    ORDER BY task_uuid, step_uuid
),
announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM moved WHERE $4 AND state = 'enqueued' ORDER BY task_uuid, step_uuid
)
SELECT DISTINCT namespace FROM moved WHERE state = 'enqueued';

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
