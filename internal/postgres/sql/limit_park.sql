-- name: moveParkedSteps
-- Moves the parked steps $1, $2 to the keys $3.
UPDATE tasker.held_steps a SET limit_key_id = d.limit_key_id
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS d (task_uuid, step_uuid, limit_key_id)
WHERE a.task_uuid = d.task_uuid AND a.step_uuid = d.step_uuid AND a.limit_key_id <> d.limit_key_id;

-- name: parkSteps
-- Parks ready steps under keys. Outdated rows are only deleted.
--
-- $1 tasks, $2 steps, $3 namespaces, $4 handlers, $5 priorities, $6 times, $7 keys.
WITH locked AS MATERIALIZED (
    SELECT q.ready_row, d.limit_key_id
    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::int[], $6::timestamptz[], $7::bigint[])
        AS d (task_uuid, step_uuid, namespace, handler, priority, state_since, limit_key_id)
    CROSS JOIN LATERAL (
        SELECT r.ctid AS ready_row
        FROM tasker.ready_steps r
        WHERE r.namespace = d.namespace AND r.handler = d.handler AND r.priority = d.priority AND r.state_since = d.state_since
          AND r.step_uuid = d.step_uuid AND r.task_uuid = d.task_uuid
        FOR NO KEY UPDATE SKIP LOCKED
    ) q
),
gone AS (
    DELETE FROM tasker.ready_steps r USING locked d WHERE r.ctid = d.ready_row
    RETURNING d.limit_key_id, r.released_by, r.namespace, r.handler, r.priority, r.state_since, r.step_uuid, r.task_uuid, r.queue_ttl_ms, r.inputs_bytes
)
INSERT INTO tasker.held_steps (limit_key_id, released_by, namespace, handler, priority, state_since, step_uuid, task_uuid, queue_ttl_ms, inputs_bytes)
SELECT g.limit_key_id, g.released_by, g.namespace, g.handler, g.priority, g.state_since, g.step_uuid, g.task_uuid, g.queue_ttl_ms, g.inputs_bytes
FROM gone g
WHERE EXISTS (
    SELECT FROM tasker.workflow_steps s
    WHERE s.task_uuid = g.task_uuid AND s.step_uuid = g.step_uuid AND s.state || '' = 'enqueued' AND s.state_since = g.state_since
    OFFSET 0 -- one lookup by key per row
)
ORDER BY g.task_uuid, g.step_uuid
ON CONFLICT (task_uuid, step_uuid) DO UPDATE
SET hold_uuid = NULL, limit_key_id = excluded.limit_key_id, released_by = excluded.released_by, state_since = excluded.state_since, priority = excluded.priority,
    queue_ttl_ms = excluded.queue_ttl_ms, inputs_bytes = excluded.inputs_bytes, held_at = clock_timestamp(), counted_until = NULL;

-- name: stepsOfFullKeys
-- Selects those of the steps $1, $2 that have a full key.
SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, f.limit_key_id
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.state || '' = 'enqueued'
CROSS JOIN LATERAL (
    SELECT k.limit_key_id
    FROM tasker.step_limits(s.task_uuid, s.step_uuid, s.namespace, s.handler) k
    CROSS JOIN LATERAL tasker.free_slots(k.limit_key_id, NULL) f
    WHERE f.free < least(k.weight, f.most)
    ORDER BY k.limit_id, k.key
    LIMIT 1
) f
WHERE EXISTS (SELECT FROM tasker.limit_queues);
