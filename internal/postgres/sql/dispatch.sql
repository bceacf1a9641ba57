-- name: announceAgain
INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace, due_at)
SELECT s.task_uuid, s.step_uuid, s.namespace, clock_timestamp() + $3::interval
FROM (SELECT 'enqueued' AS enqueued OFFSET 0) c
CROSS JOIN unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
WHERE s.state = c.enqueued AND NOT EXISTS (SELECT FROM tasker.held_steps q WHERE q.task_uuid = s.task_uuid AND q.step_uuid = s.step_uuid)
RETURNING step_uuid;

-- name: dueAnnouncements
SELECT o.position, o.task_uuid, o.step_uuid, o.namespace, coalesce(s.state = 'enqueued', false) AS waits
FROM tasker.dispatch_outbox o
LEFT JOIN tasker.workflow_steps s ON s.task_uuid = o.task_uuid AND s.step_uuid = o.step_uuid
WHERE o.due_at <= clock_timestamp()
ORDER BY o.position
LIMIT $1
FOR NO KEY UPDATE OF o SKIP LOCKED;

-- name: deleteAnnounced
DELETE FROM tasker.dispatch_outbox WHERE position = ANY ($1);

-- name: postponeAnnouncements
UPDATE tasker.dispatch_outbox
SET due_at = clock_timestamp() + least(greatest(clock_timestamp() - created_at, $2::interval), interval '1 minute')
WHERE position = ANY ($1);

-- name: waitingNamespaces
-- Reads one index entry per namespace.
WITH RECURSIVE n AS (
    (SELECT s.namespace FROM tasker.ready_steps s ORDER BY s.namespace LIMIT 1)
    UNION ALL
    SELECT (SELECT s.namespace FROM tasker.ready_steps s WHERE s.namespace > n.namespace ORDER BY s.namespace LIMIT 1)
    FROM n
    WHERE n.namespace IS NOT NULL
)
SELECT n.namespace FROM n WHERE n.namespace IS NOT NULL;

-- name: announceLost
WITH lost AS (
    SELECT s.task_uuid, s.step_uuid, s.namespace, s.state_since
    FROM tasker.ready_steps s
    WHERE s.namespace = $1 AND s.state_since < now() - $2::interval
      AND s.expires_at > now()
      AND NOT EXISTS (SELECT FROM tasker.dispatch_outbox o WHERE o.step_uuid = s.step_uuid)
    LIMIT $3
),
again AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM lost ORDER BY state_since
    RETURNING 1
)
SELECT count(*) FROM again;

-- name: sendCanary
UPDATE tasker.dispatch_canary SET sent_at = clock_timestamp()
WHERE only_row AND (sent_at IS NULL OR sent_at <= clock_timestamp() - $1::interval);

-- name: canaryReturned
UPDATE tasker.dispatch_canary SET returned_at = clock_timestamp() WHERE only_row;

-- name: canaryMissing
SELECT coalesce((
    SELECT clock_timestamp() - sent_at
    FROM tasker.dispatch_canary
    WHERE sent_at > coalesce(returned_at, '-infinity') AND sent_at <= clock_timestamp() - $1::interval
), interval '0');

-- name: canaryReturnedAt
SELECT max(returned_at) FROM tasker.dispatch_canary;

-- name: noteDeadLetter
UPDATE tasker.tasks_dlq d
SET metadata = jsonb_set(d.metadata, '{dispatch, dead_letter}', $3::text::jsonb)
WHERE d.task_uuid = $1 AND d.step_uuid = $2 AND d.resolution_status = 'pending' AND d.dlq_reason = 'worker_unavailable'
  AND jsonb_typeof(d.metadata -> 'dispatch') = 'object' AND NOT (d.metadata -> 'dispatch') ? 'dead_letter';

-- name: outbox
SELECT count(*), coalesce(greatest(extract(epoch FROM clock_timestamp() - min(created_at)), 0), 0)::float8
FROM (SELECT created_at FROM tasker.dispatch_outbox ORDER BY position LIMIT $1) o;
