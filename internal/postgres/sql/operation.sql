-- name: selectOperation
-- The caller must be allowed to see all namespaces of the operation. Null means that all are
-- visible.
SELECT
    o.operation_uuid AS uuid, o.act, o.arguments, o.selection, o.planned_by, o.reason, o.namespaces, o.state, o.items, o.capped, o.without_step,
    o.overlapping, o.plan_digest, o.waves, o.wave, o.rate_per_minute, o.tolerate, o.tolerated_causes, o.stop_on_new_cause, extract(epoch FROM o.wave_timeout)::float8 AS wave_timeout,
    coalesce(o.paused_for, '') AS paused_for, coalesce(o.paused_by, '') AS paused_by, o.paused_at, o.paused_details,
    o.created_at, o.expires_at, coalesce(o.worker_at_least, '') AS worker_at_least, coalesce(o.started_by, '') AS started_by, o.started_at, o.ended_at, o.settled_at, n.item_states, n.item_counts
FROM tasker.operations o
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(n.state), '{}') AS item_states, coalesce(array_agg(n.items), '{}') AS item_counts
    FROM (SELECT i.state, count(*) AS items FROM tasker.operation_items i WHERE i.operation_uuid = o.operation_uuid GROUP BY i.state) n
) n
WHERE o.operation_uuid = $1 AND ($2::text[] IS NULL OR o.namespaces <@ $2);

-- name: selectOperations
SELECT
    o.operation_uuid AS uuid, o.act, o.arguments, o.selection, o.planned_by, o.reason, o.namespaces, o.state, o.items, o.capped, o.without_step,
    o.overlapping, o.plan_digest, o.waves, o.wave, o.rate_per_minute, o.tolerate, o.tolerated_causes, o.stop_on_new_cause, extract(epoch FROM o.wave_timeout)::float8 AS wave_timeout,
    coalesce(o.paused_for, '') AS paused_for, coalesce(o.paused_by, '') AS paused_by, o.paused_at, o.paused_details,
    o.created_at, o.expires_at, coalesce(o.worker_at_least, '') AS worker_at_least, coalesce(o.started_by, '') AS started_by, o.started_at, o.ended_at, o.settled_at, n.item_states, n.item_counts
FROM (
    SELECT o.* FROM tasker.operations o
    WHERE ($3 = '' OR o.state = $3) AND ($4::text[] IS NULL OR o.namespaces <@ $4) AND ($5 = '' OR $5 = ANY (o.namespaces))
    ORDER BY o.created_at DESC, o.operation_uuid DESC LIMIT $1 OFFSET $2
) o
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(n.state), '{}') AS item_states, coalesce(array_agg(n.items), '{}') AS item_counts
    FROM (SELECT i.state, count(*) AS items FROM tasker.operation_items i WHERE i.operation_uuid = o.operation_uuid GROUP BY i.state) n
) n
ORDER BY o.created_at DESC, o.operation_uuid DESC;

-- name: selectItems
SELECT
i.ordinal, i.task_uuid, nullif(i.step_uuid, '00000000-0000-0000-0000-000000000000') AS step_uuid, i.entry_uuid, i.namespace, i.state,
coalesce(i.outcome, '') AS outcome, i.wave + 1 AS wave, i.released_at, i.failed_at, coalesce(i.failure_text, '') AS failure_text, nullif(i.made_task, i.task_uuid) AS made_task, i.ended_at FROM tasker.operation_items i
    WHERE i.operation_uuid = $1 AND i.ordinal > $2 ORDER BY i.ordinal LIMIT $3;

-- name: selectItemsInState
SELECT
i.ordinal, i.task_uuid, nullif(i.step_uuid, '00000000-0000-0000-0000-000000000000') AS step_uuid, i.entry_uuid, i.namespace, i.state,
coalesce(i.outcome, '') AS outcome, i.wave + 1 AS wave, i.released_at, i.failed_at, coalesce(i.failure_text, '') AS failure_text, nullif(i.made_task, i.task_uuid) AS made_task, i.ended_at FROM tasker.operation_items i
    WHERE i.operation_uuid = $1 AND i.ordinal > $2 AND i.state = $4 ORDER BY i.ordinal LIMIT $3;

-- name: countItemsByState
SELECT n.state, sum(n.items)::bigint AS items
FROM tasker.operations o
CROSS JOIN LATERAL (SELECT i.state, count(*) AS items FROM tasker.operation_items i WHERE i.operation_uuid = o.operation_uuid GROUP BY i.state) n
WHERE o.settled_at IS NULL
GROUP BY n.state;
