-- name: changeKey
-- Changes the keys of parked steps.
UPDATE tasker.held_steps a SET limit_key_id = d.limit_key_id
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bool[]) AS d (task_uuid, step_uuid, limit_key_id, parked)
WHERE d.parked AND a.task_uuid = d.task_uuid AND a.step_uuid = d.step_uuid AND a.limit_key_id <> d.limit_key_id;

-- name: parkFullSteps
-- Parks the ready steps $1, $2 under the keys $3.
WITH due AS MATERIALIZED (
    SELECT q.ready_row, d.limit_key_id
    FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS d (task_uuid, step_uuid, limit_key_id)
    JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.state || '' = 'enqueued'
    CROSS JOIN LATERAL (
        SELECT r.ctid AS ready_row FROM tasker.ready_steps r
        WHERE r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid AND r.task_uuid = s.task_uuid
        FOR NO KEY UPDATE SKIP LOCKED
    ) q
),
gone AS (
    DELETE FROM tasker.ready_steps r USING due d WHERE r.ctid = d.ready_row
    RETURNING d.limit_key_id, r.released_by, r.namespace, r.handler, r.priority, r.state_since, r.step_uuid, r.task_uuid, r.queue_ttl_ms, r.inputs_bytes
)
INSERT INTO tasker.held_steps (limit_key_id, released_by, namespace, handler, priority, state_since, step_uuid, task_uuid, queue_ttl_ms, inputs_bytes)
SELECT limit_key_id, released_by, namespace, handler, priority, state_since, step_uuid, task_uuid, queue_ttl_ms, inputs_bytes FROM gone ORDER BY task_uuid, step_uuid
ON CONFLICT (task_uuid, step_uuid) DO UPDATE
SET hold_uuid = NULL, limit_key_id = excluded.limit_key_id, released_by = excluded.released_by, state_since = excluded.state_since, priority = excluded.priority,
    queue_ttl_ms = excluded.queue_ttl_ms, inputs_bytes = excluded.inputs_bytes, held_at = clock_timestamp(), counted_until = NULL;

-- name: stepsOfFullKeys
-- Selects those of the steps $1, $2 that have a full key.
SELECT coalesce(array_agg(s.task_uuid), '{}') AS tasks, coalesce(array_agg(s.step_uuid), '{}') AS steps, coalesce(array_agg(f.limit_key_id), '{}') AS keys, '{}'::bool[] AS parked
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
CROSS JOIN LATERAL (
        SELECT p.limit_key_id
        FROM (SELECT x.limit_id, '' AS key, 1 AS weight FROM (
        SELECT l.limit_id FROM tasker.limits l WHERE l.namespace = '' AND l.kind = 'server' AND l.name = ''
        UNION ALL
        SELECT l.limit_id FROM tasker.limits l WHERE l.namespace = s.namespace AND l.kind = 'namespace' AND l.name = ''
        UNION ALL
        SELECT l.limit_id FROM tasker.limits l WHERE l.namespace = s.namespace AND l.kind = 'handler' AND l.name = s.handler) x
        UNION ALL
        SELECT t.limit_id, t.key, t.weight
        FROM tasker.task_limits t
        JOIN tasker.limits l ON l.limit_id = t.limit_id
        WHERE t.task_uuid = s.task_uuid AND (t.step_uuid IS NULL OR t.step_uuid = s.step_uuid OR t.step_uuid = (
            SELECT i.map_step_uuid FROM tasker.workflow_steps i WHERE i.task_uuid = s.task_uuid AND i.step_uuid = s.step_uuid
        ))) x
        JOIN tasker.limit_keys p ON p.limit_id = x.limit_id AND p.key = x.key
        JOIN tasker.limits l ON l.limit_id = p.limit_id
        CROSS JOIN (SELECT clock_timestamp() AS at) c
        WHERE CASE WHEN l.limit_id IS NULL THEN x.weight ELSE least(x.weight,
            CASE WHEN l.max_in_progress IS NOT NULL THEN l.max_in_progress - (
                SELECT coalesce(sum(n.weight), 0) FROM (SELECT h.weight FROM tasker.limit_slots h WHERE h.limit_key_id = p.limit_key_id AND EXISTS (
        SELECT FROM tasker.workflow_steps s
        WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state || '' = 'in_progress' AND s.fence = h.fence
        OFFSET 0 -- one lookup by key per row
    ) LIMIT l.max_in_progress) n
            ) END,
            CASE WHEN l.per_second IS NOT NULL
                THEN floor(l.burst - greatest(extract(epoch FROM nullif(p.full_at, '-infinity') - c.at), 0) * l.per_second + 1e-9) END
        )::bigint END < least(x.weight, least(l.max_in_progress, l.burst))
        ORDER BY p.limit_id, p.key
        LIMIT 1) f
WHERE EXISTS (SELECT FROM tasker.limit_queues);
