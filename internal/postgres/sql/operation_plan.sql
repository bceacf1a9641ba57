-- name: lockPlans
SELECT pg_advisory_xact_lock(hashtextextended('tasker.operations', 0));

-- name: insertOperation
INSERT INTO tasker.operations (operation_uuid, request_key, digest, act, arguments, selection, planned_by, reason, namespaces, state, waves,
    rate_per_minute, tolerate, stop_on_new_cause, wave_timeout, expires_at, worker_at_least)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '{}', 'planned', $9, $10, $11, $12, $13, clock_timestamp() + $14::interval, nullif($15, ''));

-- name: setItems
UPDATE tasker.operations
SET namespaces = $2, items = $3, capped = $4, without_step = $5, overlapping = $6, causes = $7, plan_digest = $8
WHERE operation_uuid = $1;

-- name: planners
SELECT operation_uuid, planned_by FROM tasker.operations WHERE operation_uuid = ANY ($1);

-- name: countOpenOperations
SELECT CASE WHEN cardinality(o.namespaces) = 1 THEN o.namespaces[1] ELSE '' END AS namespace, count(*) AS operations
FROM (SELECT namespaces FROM tasker.operations WHERE settled_at IS NULL LIMIT $1) o
GROUP BY 1;

-- name: operationByKey
SELECT operation_uuid, digest FROM tasker.operations WHERE request_key = $1;
