-- name: requestsToCreate
SELECT r.task_uuid
FROM tasker.task_requests r
WHERE r.refused_at IS NULL AND r.created_at <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = 'request' AND w.task_uuid = r.task_uuid)
ORDER BY r.created_at
LIMIT $1;

-- name: takeTaskRequest
-- Deletes a request that no other transaction is processing.
DELETE FROM tasker.task_requests r
WHERE r.task_uuid = (
    SELECT q.task_uuid FROM tasker.task_requests q WHERE q.task_uuid = $1 AND q.refused_at IS NULL FOR UPDATE SKIP LOCKED
)
RETURNING r.task_uuid, r.namespace, r.name, r.version, r.context, r.priority, r.tags, coalesce(r.idempotency_key, '') AS idempotency_key,
    r.correlation_id, r.reason, r.source_system, r.initiator, r.start_at, r.due_at, r.created_at, r.refused_at, r.error_code, r.error_message;

-- name: refuseTaskRequest
UPDATE tasker.task_requests
SET refused_at = clock_timestamp(), error_code = $2, error_message = $3
WHERE task_uuid = $1 AND refused_at IS NULL;

-- name: selectTaskRequest
SELECT r.task_uuid, r.namespace, r.name, r.version, r.context, r.priority, r.tags, coalesce(r.idempotency_key, '') AS idempotency_key,
    r.correlation_id, r.reason, r.source_system, r.initiator, r.start_at, r.due_at, r.created_at, r.refused_at, r.error_code, r.error_message
FROM tasker.task_requests r
WHERE r.task_uuid = $1;

-- name: listTaskRequests
SELECT r.task_uuid, r.namespace, r.name, r.version, r.context, r.priority, r.tags, coalesce(r.idempotency_key, '') AS idempotency_key,
    r.correlation_id, r.reason, r.source_system, r.initiator, r.start_at, r.due_at, r.created_at, r.refused_at, r.error_code, r.error_message
FROM tasker.task_requests r
WHERE ($1::text[] IS NULL OR r.namespace = ANY ($1)) AND ($2 = '' OR r.namespace = $2) AND ($3::boolean IS NULL OR (r.refused_at IS NOT NULL) = $3)
ORDER BY r.task_uuid DESC
LIMIT $4 OFFSET $5;

-- name: deleteTaskRequest
DELETE FROM tasker.task_requests WHERE task_uuid = $1 RETURNING namespace, name;

-- name: countRefusedTaskRequests
SELECT count(*) FROM tasker.task_requests WHERE refused_at IS NOT NULL;
