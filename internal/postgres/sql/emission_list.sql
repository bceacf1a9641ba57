-- name: event
SELECT o.position, o.event_uuid AS uuid, o.topic, o.task_uuid,
    coalesce(o.dlq_entry_uuid, '00000000-0000-0000-0000-000000000000') AS entry_uuid, o.created_at AS at, o.data
FROM tasker.outbox o
WHERE o.event_uuid = $1;

-- name: emissionsOf
SELECT e.sink, e.state, e.attempts, e.refusals, CASE WHEN e.state = 'pending' THEN e.next_attempt_at END AS next_attempt_at,
    e.last_attempt_at, e.last_error, e.published_at, o.position, o.event_uuid AS uuid, o.topic, o.task_uuid,
    coalesce(o.dlq_entry_uuid, '00000000-0000-0000-0000-000000000000') AS entry_uuid, o.created_at AS at, o.data
FROM tasker.outbox o
JOIN tasker.emissions e ON e.position = o.position
WHERE o.event_uuid = $1
ORDER BY e.sink;

-- name: emissions
-- $1 limit, $2 sink or '', $3 state or '', $4 first position that is excluded. Each sink is read by
-- the index of the state. A page never divides the deliveries of an event.
WITH page AS MATERIALIZED (
    SELECT e.*
    FROM tasker.emission_sinks s
    CROSS JOIN LATERAL (
        (
            SELECT e.* FROM tasker.emissions e
            WHERE $3 IN ('', 'published') AND e.sink = s.sink AND e.position < $4 AND ($3 = '' OR e.state = $3)
            ORDER BY e.position DESC
            LIMIT $1
        ) UNION ALL (
            SELECT e.* FROM tasker.emissions e
            WHERE $3 = 'pending' AND e.sink = s.sink AND e.state = 'pending' AND e.position > 0 AND e.position < $4
            ORDER BY e.position DESC
            LIMIT $1
        ) UNION ALL (
            SELECT e.* FROM tasker.emissions e
            WHERE $3 = 'set_aside' AND e.sink = s.sink AND e.state = 'set_aside' AND e.position < $4
            ORDER BY e.position DESC
            LIMIT $1
        )
    ) e
    WHERE $2 = '' OR s.sink = $2
    ORDER BY e.position DESC
    FETCH FIRST $1 ROWS WITH TIES
)
SELECT e.sink, e.state, e.attempts, e.refusals, CASE WHEN e.state = 'pending' THEN e.next_attempt_at END AS next_attempt_at,
    e.last_attempt_at, e.last_error, e.published_at, o.position, o.event_uuid AS uuid, o.topic, o.task_uuid,
    coalesce(o.dlq_entry_uuid, '00000000-0000-0000-0000-000000000000') AS entry_uuid, o.created_at AS at, o.data
FROM page e
JOIN tasker.outbox o ON o.position = e.position
ORDER BY e.position DESC, e.sink;

-- name: emissionsOfTopic
-- emissions of the topic $5, whose events are read by index, since they may be rare.
WITH page AS MATERIALIZED (
    SELECT e.*
    FROM tasker.emission_sinks s
    CROSS JOIN LATERAL (
        SELECT e.*
        FROM (
            SELECT o.topic, o.position
            FROM tasker.outbox o
            WHERE (o.topic, o.position) >= ($5, 0) AND (o.topic, o.position) < ($5, $4)
            ORDER BY o.topic DESC, o.position DESC
            OFFSET 0
        ) o
        CROSS JOIN tasker.emissions e
        WHERE e.sink = s.sink AND e.position = o.position AND ($3 = '' OR e.state = $3)
        ORDER BY o.topic DESC, o.position DESC, e.position DESC
        LIMIT $1
    ) e
    WHERE $2 = '' OR s.sink = $2
    ORDER BY e.position DESC
    FETCH FIRST $1 ROWS WITH TIES
)
SELECT e.sink, e.state, e.attempts, e.refusals, CASE WHEN e.state = 'pending' THEN e.next_attempt_at END AS next_attempt_at,
    e.last_attempt_at, e.last_error, e.published_at, o.position, o.event_uuid AS uuid, o.topic, o.task_uuid,
    coalesce(o.dlq_entry_uuid, '00000000-0000-0000-0000-000000000000') AS entry_uuid, o.created_at AS at, o.data
FROM page e
JOIN tasker.outbox o ON o.position = e.position
ORDER BY e.position DESC, e.sink;

-- name: emissionsOfNamespaces
-- emissions in the namespaces $6, of the topic $5 or '' for all. Because of the row comparisons, the
-- planner uses one index range per namespace and sink.
WITH page AS MATERIALIZED (
    SELECT e.*
    FROM tasker.emission_sinks s
    CROSS JOIN unnest($6::text[]) AS n (namespace)
    CROSS JOIN LATERAL (
        (
            SELECT e.* FROM tasker.emissions e
            WHERE $3 IN ('', 'published') AND ($3 = '' OR e.state = $3) AND e.sink = s.sink
              AND (e.namespace, e.sink, e.position) < (n.namespace, s.sink, $4)
              AND (e.namespace, e.sink, e.position) >= (n.namespace, s.sink, 0)
              AND ($5 = '' OR (SELECT o.topic FROM tasker.outbox o WHERE o.position = e.position OFFSET 0) = $5)
            ORDER BY e.namespace DESC, e.sink DESC, e.position DESC
            LIMIT $1
        ) UNION ALL (
            SELECT e.* FROM tasker.emissions e
            WHERE $3 NOT IN ('', 'published') AND e.state <> 'published' AND e.namespace > '' AND e.sink = s.sink
              AND (e.namespace, e.sink, e.state, e.position) < (n.namespace, s.sink, $3, $4)
              AND (e.namespace, e.sink, e.state, e.position) >= (n.namespace, s.sink, $3, 0)
              AND ($5 = '' OR (SELECT o.topic FROM tasker.outbox o WHERE o.position = e.position OFFSET 0) = $5)
            ORDER BY e.namespace DESC, e.sink DESC, e.state DESC, e.position DESC
            LIMIT $1
        )
    ) e
    WHERE $2 = '' OR s.sink = $2
    ORDER BY e.position DESC
    FETCH FIRST $1 ROWS WITH TIES
)
SELECT e.sink, e.state, e.attempts, e.refusals, CASE WHEN e.state = 'pending' THEN e.next_attempt_at END AS next_attempt_at,
    e.last_attempt_at, e.last_error, e.published_at, o.position, o.event_uuid AS uuid, o.topic, o.task_uuid,
    coalesce(o.dlq_entry_uuid, '00000000-0000-0000-0000-000000000000') AS entry_uuid, o.created_at AS at, o.data
FROM page e
JOIN tasker.outbox o ON o.position = e.position
ORDER BY e.position DESC, e.sink;

-- name: sinks
SELECT sink FROM tasker.emission_sinks ORDER BY sink;

-- name: eventSinks
SELECT sink FROM tasker.emission_sinks WHERE events ORDER BY sink;

-- name: outboxStats
WITH part AS MATERIALIZED (
    SELECT o.position FROM tasker.outbox o WHERE o.position BETWEEN $1 AND $2 ORDER BY o.position LIMIT $3
), whole AS MATERIALIZED (
    SELECT count(*) AS events, coalesce(max(position), 0) AS last FROM part
)
SELECT w.events, w.last,
    (SELECT o.position FROM tasker.outbox o WHERE w.events > 0 AND o.position > w.last AND o.position <= $2 ORDER BY o.position LIMIT 1) AS next
FROM whole w;

-- name: reEmit
-- Also inserts deliveries of events that are older than the sink.
WITH wanted AS MATERIALIZED (
    SELECT o.position, o.event_uuid, o.task_uuid, o.namespace
    FROM tasker.outbox o
    WHERE o.position BETWEEN $2 AND $3
    ORDER BY o.position
    LIMIT $4
),
again AS (
    INSERT INTO tasker.emissions AS e (sink, position, event_uuid, task_uuid, namespace)
    SELECT s.sink, w.position, w.event_uuid, w.task_uuid, w.namespace
    FROM wanted w
    JOIN tasker.emission_sinks s ON s.sink = ANY ($1)
    ON CONFLICT (sink, position) DO UPDATE
    SET state = 'pending', refusals = 0, next_attempt_at = clock_timestamp()
    RETURNING e.position
),
awake AS (
    UPDATE tasker.emission_sinks SET next_try_at = NULL WHERE sink = ANY ($1) AND next_try_at IS NOT NULL
),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT $5, 'dlq.re_emit', $6, jsonb_build_object('sinks', $1::text[], 'from', $2::bigint, 'to', $3::bigint, 'reason', $7::text, 'emissions', count(*))
    FROM again
    HAVING count(*) > 0
)
SELECT count(*) FROM again;

-- name: auditEvent
INSERT INTO tasker.audit_events (actor, action, subject, data) VALUES ($1, $2, $3, $4::text::jsonb);

-- name: auditWithoutData
INSERT INTO tasker.audit_events (actor, action, subject) VALUES ($1, $2, $3);

-- name: auditEvents
SELECT audit_id AS id, actor, action, subject, data, created_at AS at
FROM tasker.audit_events
WHERE audit_id < $2
ORDER BY audit_id DESC
LIMIT $1;

-- name: auditEventsOfAction
SELECT audit_id AS id, actor, action, subject, data, created_at AS at
FROM tasker.audit_events
WHERE action = $3 AND audit_id < $2
ORDER BY audit_id DESC
LIMIT $1;
