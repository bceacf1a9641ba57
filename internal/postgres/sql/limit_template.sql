-- name: insertTaskLimits
INSERT INTO tasker.task_limits (task_uuid, step_uuid, limit_id, key, weight)
SELECT u.task_uuid, u.step_uuid, l.limit_id, u.key, u.weight
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::integer[]) AS u (task_uuid, namespace, name, key, step_uuid, weight)
JOIN tasker.limits l ON l.namespace = u.namespace AND l.kind = 'name' AND l.name = u.name;

-- name: makeTaskKeys
-- Creates missing keys. Each is looked up separately to avoid a bad plan.
INSERT INTO tasker.limit_keys (limit_id, key)
SELECT l.limit_id, u.key
FROM (SELECT DISTINCT namespace, name, key FROM unnest($1::text[], $2::text[], $3::text[]) AS u (namespace, name, key)) u
JOIN tasker.limits l ON l.namespace = u.namespace AND l.kind = 'name' AND l.name = u.name
WHERE (SELECT k.limit_key_id FROM tasker.limit_keys k WHERE k.limit_id = l.limit_id AND k.key = u.key) IS NULL
ORDER BY l.limit_id, u.key
ON CONFLICT (limit_id, key) DO NOTHING;

-- name: storeTemplateLimits
-- A limit that templates assign has the value from the newest registration until an operator
-- changes
-- it.
WITH assigned AS (
    SELECT * FROM unnest($2::text[], $3::int[], $4::float8[], $5::int[]) AS u (name, max_in_progress, per_second, burst)
),
stored AS (
    INSERT INTO tasker.limits (kind, namespace, name, max_in_progress, per_second, burst, by_template, changed_by)
    SELECT 'name', $1, g.name, nullif(g.max_in_progress, 0), nullif(g.per_second, 0), nullif(g.burst, 0), true, $6
    FROM assigned g
    ORDER BY g.name
    ON CONFLICT (namespace, kind, name) DO UPDATE
    SET max_in_progress = CASE WHEN limits.by_template THEN excluded.max_in_progress ELSE limits.max_in_progress END,
        per_second = CASE WHEN limits.by_template THEN excluded.per_second ELSE limits.per_second END,
        burst = CASE WHEN limits.by_template THEN excluded.burst ELSE limits.burst END,
        changed_by = CASE WHEN limits.by_template THEN excluded.changed_by ELSE limits.changed_by END,
        changed_at = CASE WHEN limits.by_template THEN clock_timestamp() ELSE limits.changed_at END
    RETURNING limit_id, name
)
INSERT INTO tasker.limit_queues (namespace, handler, limit_id)
SELECT DISTINCT $1, q.handler, s.limit_id
FROM unnest($7::text[], $8::text[]) AS q (name, handler)
JOIN stored s ON s.name = q.name
ON CONFLICT DO NOTHING;

-- name: changeLimitKeys
UPDATE tasker.task_limits t SET key = u.key
FROM unnest($2::text[], $3::text[]) AS u (name, key)
JOIN tasker.limits l ON l.namespace = $4 AND l.kind = 'name' AND l.name = u.name
WHERE t.task_uuid = $1 AND t.limit_id = l.limit_id;
