-- name: selectPaused
-- Selects operations that a guard paused at least $2 ago and about which no message was sent since.
SELECT o.operation_uuid, o.paused_by
FROM tasker.operations o
WHERE o.state = 'paused' AND o.paused_for <> $1 AND o.paused_at <= now() - $2::interval AND NOT EXISTS (
    SELECT FROM tasker.messages m WHERE m.subject_id = o.operation_uuid AND m.topic = $3 AND m.created_at >= o.paused_at
)
FOR NO KEY UPDATE SKIP LOCKED;

-- name: operationToNotify
SELECT o.state, o.act, o.namespaces, coalesce(o.paused_for, '') AS paused_for, o.created_at, o.started_at, o.settled_at, n.items, n.verified, n.failed_again, n.skipped
FROM tasker.operations o
CROSS JOIN LATERAL (
    SELECT count(*) AS items, count(*) FILTER (WHERE i.state = 'verified') AS verified, count(*) FILTER (WHERE i.state = 'failed_again') AS failed_again,
        count(*) FILTER (WHERE i.state IN ('skipped', 'aborted')) AS skipped
    FROM tasker.operation_items i
    WHERE i.operation_uuid = o.operation_uuid
) n
WHERE o.operation_uuid = $1;
