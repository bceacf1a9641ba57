-- name: tryLockMessages
SELECT pg_try_advisory_xact_lock(hashtextextended('tasker.messages', 0));

-- name: selectUnrouted
SELECT m.position, m.message_uuid AS uuid, m.topic, m.subject_kind, m.subject_id, m.incident_id, m.namespaces, coalesce(m.dedup_key, '') AS dedup_key,
    m.escalation, m.data, m.created_at AS at, m.routed_at, array(
        SELECT DISTINCT e.sink
        FROM tasker.messages b
        JOIN tasker.message_emissions e ON e.position = b.position
        WHERE b.subject_id = m.subject_id AND b.position < m.position
    ) AS earlier
FROM tasker.messages m
WHERE m.routed_at IS NULL
ORDER BY m.position
LIMIT $1;

-- name: insertRoutedMessages
WITH chosen AS (
    SELECT u.position, u.sink, m.subject_id
    FROM unnest($1::bigint[], $2::text[]) AS u (position, sink)
    JOIN tasker.messages m ON m.position = u.position
),
known AS (
    INSERT INTO tasker.emission_sinks (sink, events) SELECT DISTINCT sink, false FROM chosen ON CONFLICT DO NOTHING
),
listed AS (
    INSERT INTO tasker.message_emissions (sink, position, subject_id)
    SELECT sink, position, subject_id FROM chosen
    ON CONFLICT DO NOTHING
)
UPDATE tasker.messages SET routed_at = clock_timestamp() WHERE position = ANY ($3);

-- name: dueMessages
-- A message waits for earlier messages about its subject.
SELECT m.position, m.message_uuid AS uuid, m.topic, m.subject_kind, m.subject_id, m.incident_id, m.namespaces, coalesce(m.dedup_key, '') AS dedup_key,
    m.escalation, m.data, m.created_at AS at, m.routed_at, e.next_attempt_at AS due
FROM tasker.message_emissions e
JOIN tasker.messages m ON m.position = e.position
WHERE e.sink = $1 AND e.state = 'pending' AND e.next_attempt_at <= clock_timestamp()
  AND NOT EXISTS (
      SELECT FROM tasker.message_emissions b
      WHERE b.sink = $1 AND b.state = 'pending' AND b.subject_id = e.subject_id AND b.position < e.position
  )
ORDER BY e.position
LIMIT $2;

-- name: openMessages
-- Open subjects are open incidents, open holds and paused operations.
SELECT DISTINCT ON (m.subject_id) m.position, m.message_uuid AS uuid, m.topic, m.subject_kind, m.subject_id, m.incident_id, m.namespaces, coalesce(m.dedup_key, '') AS dedup_key,
    m.escalation, m.data, m.created_at AS at, m.routed_at
FROM (
    SELECT i.incident_id AS subject_id FROM tasker.incidents i WHERE i.ended_at IS NULL
    UNION ALL
    SELECT o.operation_uuid FROM tasker.operations o WHERE o.state = 'paused'
    UNION ALL
    SELECT h.hold_uuid FROM tasker.holds h WHERE h.ended_at IS NULL
) s
JOIN tasker.messages m ON m.subject_id = s.subject_id
JOIN tasker.message_emissions e ON e.position = m.position AND e.sink = $1 AND e.state = 'published'
ORDER BY m.subject_id, m.position DESC
LIMIT $2;

-- name: messagesPending
SELECT EXISTS (SELECT FROM tasker.message_emissions WHERE state = 'pending' AND next_attempt_at <= clock_timestamp());

-- name: pruneMessages
-- Messages of open incidents are kept, since their sinks must also receive the final message.
WITH old AS MATERIALIZED (
    SELECT m.position
    FROM (
        SELECT n.position, n.created_at
        FROM tasker.messages n
        WHERE NOT EXISTS (SELECT FROM tasker.incidents i WHERE i.incident_id = n.incident_id AND i.ended_at IS NULL)
        ORDER BY n.position
        LIMIT $2
    ) m
    WHERE m.created_at < clock_timestamp() - $1::interval
),
unsent AS (
    DELETE FROM tasker.message_emissions e USING old o WHERE e.position = o.position RETURNING e.published_at
),
gone AS (
    DELETE FROM tasker.messages m USING old o WHERE m.position = o.position RETURNING m.position
)
SELECT (SELECT count(*) FROM gone) AS removed, (SELECT count(*) FROM unsent WHERE published_at IS NULL) AS unsent;
