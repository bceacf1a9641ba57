-- name: selectHeldInQueue
SELECT (
    SELECT count(*) FROM (SELECT FROM tasker.held_steps q WHERE q.namespace = $1 AND q.handler = $2 AND q.hold_uuid IS NOT NULL LIMIT $3::bigint + 1) n
) AS steps, (
    SELECT h.hold_uuid FROM tasker.holds h
    WHERE h.blocks AND h.namespace = $1 AND (h.handler IS NULL OR h.handler = $2) AND h.task_name IS NULL AND h.step_name IS NULL
    ORDER BY h.hold_uuid LIMIT 1
) AS whole_hold, (
    SELECT h.hold_uuid FROM tasker.held_steps q JOIN tasker.holds h ON h.hold_uuid = q.hold_uuid
    WHERE q.namespace = $1 AND q.handler = $2 LIMIT 1
) AS some_hold, n.limited, n.limited_since, coalesce(l.kind, '') AS kind, coalesce(l.namespace, '') AS namespace, coalesce(l.name, '') AS name, coalesce(l.max_in_progress, 0) AS limit_max
FROM (
    SELECT count(*) AS limited, min(x.held_at) AS limited_since, (array_agg(x.limit_key_id ORDER BY x.held_at))[1] AS limit_key_id
    FROM (
        SELECT q.held_at, q.limit_key_id FROM tasker.held_steps q
        WHERE q.namespace = $1 AND q.handler = $2 AND q.limit_key_id IS NOT NULL
        LIMIT $3::bigint + 1
    ) x
) n
LEFT JOIN tasker.limit_keys k ON k.limit_key_id = n.limit_key_id
LEFT JOIN tasker.limits l ON l.limit_id = k.limit_id;

-- name: selectHoldOfItems
SELECT h.hold_uuid AS uuid, h.owner, count(*) AS steps
FROM tasker.holds h
JOIN tasker.operation_items i ON i.operation_uuid = $1 AND i.state = 'planned' AND i.namespace = h.namespace
JOIN tasker.workflow_steps s ON s.task_uuid = i.task_uuid AND s.step_uuid = i.step_uuid
JOIN tasker.tasks t ON t.task_uuid = i.task_uuid
WHERE h.blocks AND (h.handler IS NULL OR h.handler = s.handler) AND (h.task_name IS NULL OR h.task_name = t.name) AND (h.step_name IS NULL OR h.step_name IN (s.name, split_part(s.name, '[', 1)))
GROUP BY h.hold_uuid
ORDER BY steps DESC, h.hold_uuid
LIMIT 1;
