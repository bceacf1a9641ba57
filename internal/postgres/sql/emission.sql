-- name: openMessageSink
INSERT INTO tasker.emission_sinks (sink, events) VALUES ($1, false) ON CONFLICT DO NOTHING;

-- name: openSink
-- A sink that used to receive only notifications starts with new events.
INSERT INTO tasker.emission_sinks AS s (sink) VALUES ($1)
ON CONFLICT (sink) DO UPDATE SET events = true, taken_before = excluded.taken_before, opened_in = excluded.opened_in
WHERE NOT s.events;

-- name: holdSink
-- If a lease or a delay ends later than possible, the clock was set back, so it counts as over. A
-- lease
-- is renewed after a third of its duration, so that idle sinks write little. New events are those
-- that
-- are not visible in opened_in, except in a restored database (see adoptSinks).
WITH kept AS MATERIALIZED (
    SELECT s.failing_since, s.next_try_at, s.taken_before, s.opened_in
    FROM tasker.emission_sinks s
    WHERE s.sink = $1 AND s.holder = $2 AND s.held_until > clock_timestamp() + 2 * $3::interval / 3 AND s.held_until <= clock_timestamp() + 2 * $3::interval
),
taken AS (
    UPDATE tasker.emission_sinks s
    SET holder = $2, held_until = clock_timestamp() + $3::interval
    WHERE s.sink = $1 AND NOT EXISTS (SELECT FROM kept)
        AND (s.holder = $2 OR s.holder IS NULL OR s.held_until < clock_timestamp() OR s.held_until > clock_timestamp() + 2 * $3::interval)
    RETURNING s.failing_since, s.next_try_at, s.taken_before, s.opened_in
)
SELECT h.failing_since IS NOT NULL AS failing,
    CASE WHEN h.next_try_at <= clock_timestamp() + interval '1 hour' + $3::interval THEN greatest(h.next_try_at - clock_timestamp(), interval '0') END AS rest,
    greatest(h.taken_before, pg_snapshot_xmax(h.opened_in)) > pg_snapshot_xmax(pg_current_snapshot()) OR (
        SELECT o.position
        FROM tasker.outbox o
        WHERE o.written_in >= h.taken_before AND o.written_in < pg_snapshot_xmax(pg_current_snapshot())
          AND (o.written_in < pg_snapshot_xmin(pg_current_snapshot()) OR NOT pg_visible_in_snapshot(o.written_in, h.opened_in))
        ORDER BY o.written_in, o.position
        LIMIT 1
    ) IS NOT NULL AS new_events,
    (
        SELECT e.position FROM tasker.emissions e WHERE e.sink = $1 AND e.state = 'pending' AND e.position > 0 ORDER BY e.position LIMIT 1
    ) IS NOT NULL OR EXISTS (SELECT FROM tasker.message_emissions e WHERE e.sink = $1 AND e.state = 'pending') AS pending
FROM (SELECT * FROM kept UNION ALL SELECT * FROM taken) h;

-- name: releaseSinkLease
UPDATE tasker.emission_sinks SET holder = NULL, held_until = NULL WHERE sink = $1 AND holder = $2;

-- name: takeEvents
-- Takes all visible events in the order of their positions, so that events of one task keep their
-- order.
-- Events of transactions that were still open are found by reading again from taken_before, except
-- those
-- visible in opened_in. A long transaction delays taken_before but not opened_in.
WITH bound AS MATERIALIZED (SELECT pg_snapshot_xmin(pg_current_snapshot()) AS before),
sink AS MATERIALIZED (
    SELECT s.sink, s.taken_before, s.opened_in,
        greatest(s.taken_before, pg_snapshot_xmax(s.opened_in)) > pg_snapshot_xmax(pg_current_snapshot()) AS ahead
    FROM tasker.emission_sinks s
    WHERE s.sink = $1
    FOR NO KEY UPDATE OF s
),
fresh AS MATERIALIZED (
    SELECT s.sink, o.position, o.event_uuid, o.task_uuid, o.namespace, o.created_at
    FROM sink s
    JOIN tasker.outbox o ON o.written_in >= s.taken_before AND o.written_in < pg_snapshot_xmax(pg_current_snapshot())
    WHERE NOT EXISTS (SELECT FROM tasker.emissions e WHERE e.sink = $1 AND e.position = o.position)
      AND NOT pg_visible_in_snapshot(o.written_in, s.opened_in)
    ORDER BY o.position
    LIMIT $2
),
taken AS (
    INSERT INTO tasker.emissions (sink, position, event_uuid, task_uuid, namespace, next_attempt_at)
    SELECT sink, position, event_uuid, task_uuid, namespace, created_at
    FROM fresh
    ON CONFLICT DO NOTHING
),
moved AS (
    UPDATE tasker.emission_sinks s
    SET taken_before = b.before, opened_in = pg_current_snapshot()
    FROM sink
    CROSS JOIN bound b
    WHERE s.sink = sink.sink AND NOT sink.ahead AND (SELECT count(*) FROM fresh) < $2
      AND (s.taken_before <> b.before OR s.opened_in::text <> pg_current_snapshot()::text)
)
SELECT (SELECT count(*) FROM fresh) AS taken, coalesce((SELECT bool_or(ahead) FROM sink), false) AS ahead;

-- name: dueEmissions
-- An event waits for earlier events of its task. The task with the newest event comes first, so
-- that old
-- failures do not delay it.
WITH head AS (
    (
        SELECT e.task_uuid, false AS newest
        FROM tasker.emissions e
        WHERE e.sink = $1 AND e.state = 'pending' AND e.next_attempt_at > '-infinity' AND e.next_attempt_at <= now()
          AND e.position = (
              SELECT b.position
              FROM tasker.emissions b
              WHERE b.sink = $1 AND b.state = 'pending' AND b.task_uuid = e.task_uuid
              ORDER BY b.position
              LIMIT 1
          )
        ORDER BY e.next_attempt_at, e.position
        LIMIT $2
    )
    UNION ALL
    (
        SELECT recent.task_uuid, true
        FROM (
            SELECT e.task_uuid
            FROM tasker.emissions e
            WHERE e.sink = $1 AND e.state = 'pending' AND e.position > 0
            ORDER BY e.position DESC
            LIMIT 50
        ) recent
        CROSS JOIN LATERAL (
            SELECT b.position, b.next_attempt_at
            FROM tasker.emissions b
            WHERE b.sink = $1 AND b.state = 'pending' AND b.task_uuid = recent.task_uuid
            ORDER BY b.position
            LIMIT 1
        ) h
        WHERE h.next_attempt_at <= now()
        ORDER BY h.position DESC
        LIMIT 1
    )
),
first AS (SELECT h.task_uuid, bool_or(h.newest) AS newest FROM head h GROUP BY h.task_uuid)
SELECT o.position, o.event_uuid AS uuid, o.topic, o.task_uuid, coalesce(o.dlq_entry_uuid, '00000000-0000-0000-0000-000000000000') AS entry_uuid, o.created_at AS at, o.data, due.next_attempt_at AS due
FROM first
CROSS JOIN LATERAL (
    SELECT f.position, f.next_attempt_at
    FROM tasker.emissions f
    WHERE f.sink = $1 AND f.state = 'pending' AND f.task_uuid = first.task_uuid
    ORDER BY f.position
    LIMIT 20
) due
JOIN tasker.outbox o ON o.position = due.position
ORDER BY first.newest DESC, o.position
LIMIT $3;

-- name: settleEmissions
UPDATE tasker.emissions e
SET attempts = e.attempts + u.attempts, last_attempt_at = clock_timestamp(), last_error = nullif(u.error, ''),
    refusals = e.refusals + CASE WHEN u.refused THEN 1 ELSE 0 END,
    state = CASE WHEN u.published THEN 'published' WHEN u.refused AND e.refusals + 1 >= $2 THEN 'set_aside' ELSE 'pending' END,
    published_at = CASE WHEN u.published THEN clock_timestamp() ELSE e.published_at END,
    next_attempt_at = clock_timestamp() + CASE
        WHEN u.published THEN interval '0'
        ELSE least(greatest(interval '1 millisecond' * u.rest_ms, interval '1 second' * power(2, least(e.attempts / greatest(u.attempts, 1), 6)) * (0.8 + 0.4 * random())), interval '1 hour')
    END
FROM unnest($3::bigint[], $4::int[], $5::bool[], $6::bool[], $7::bigint[], $8::text[], $9::timestamptz[]) AS u (position, attempts, published, refused, rest_ms, error, due)
WHERE e.sink = $1 AND e.position = u.position AND e.state || '' = 'pending' AND e.next_attempt_at = coalesce(u.due, e.next_attempt_at)
RETURNING e.position, e.state = 'set_aside' AS set_aside, e.next_attempt_at;

-- name: noteSink
UPDATE tasker.emission_sinks
SET failing_since = CASE WHEN $3 = '' THEN NULL ELSE coalesce(failing_since, clock_timestamp()) END,
    last_error = nullif($3, ''),
    last_success_at = CASE WHEN $4 THEN clock_timestamp() ELSE last_success_at END,
    next_try_at = CASE WHEN $3 = '' THEN NULL ELSE clock_timestamp() + $5::interval END
WHERE sink = $1 AND holder = $2;

-- name: sinkStates
SELECT s.sink, coalesce(s.failing_since, w.since) AS failing_since,
    coalesce(s.last_error, CASE WHEN w.since IS NOT NULL THEN 'no attempt to send the oldest event has ended within a minute' END) AS last_error, s.last_success_at, s.next_try_at, least(p.pending + m.pending, $2) AS pending, p.oldest_position,
    least((SELECT o.created_at FROM tasker.outbox o WHERE o.position = p.oldest_position), m.oldest) AS oldest_pending,
    least((SELECT count(*) FROM (SELECT FROM tasker.emissions e WHERE e.sink = s.sink AND e.state = 'set_aside' LIMIT $2) a) + m.set_aside, $2) AS set_aside
FROM tasker.emission_sinks s
CROSS JOIN LATERAL (
    SELECT count(*) AS pending, min(e.position) AS oldest_position, (array_agg(e.next_attempt_at ORDER BY e.position))[1] AS due
    FROM (
        SELECT e.position, e.next_attempt_at FROM tasker.emissions e
        WHERE e.sink = s.sink AND e.state = 'pending' AND e.position > 0
        ORDER BY e.position
        LIMIT $2
    ) e
) p
CROSS JOIN LATERAL (
    SELECT count(*) AS pending, min(o.created_at) AS oldest, (array_agg(e.next_attempt_at ORDER BY e.position))[1] AS due,
        (SELECT count(*) FROM (SELECT FROM tasker.message_emissions e WHERE e.sink = s.sink AND e.state = 'set_aside' LIMIT $2) a) AS set_aside
    FROM (SELECT e.position, e.next_attempt_at FROM tasker.message_emissions e WHERE e.sink = s.sink AND e.state = 'pending' ORDER BY e.position LIMIT $2) e
    JOIN tasker.messages o ON o.position = e.position
) m
CROSS JOIN LATERAL (
    SELECT CASE WHEN greatest(least(p.due, m.due), s.last_success_at) < now() - interval '1 minute' AND least(p.due, m.due) IS NOT NULL
        THEN greatest(least(p.due, m.due), s.last_success_at) END AS since
) w
WHERE s.sink = ANY ($1)
ORDER BY s.sink;

-- name: settleMessages
UPDATE tasker.message_emissions e
SET attempts = e.attempts + u.attempts, last_attempt_at = clock_timestamp(), last_error = nullif(u.error, ''),
    refusals = e.refusals + CASE WHEN u.refused THEN 1 ELSE 0 END,
    state = CASE WHEN u.published THEN 'published' WHEN u.refused AND e.refusals + 1 >= $2 THEN 'set_aside' ELSE 'pending' END,
    published_at = CASE WHEN u.published THEN clock_timestamp() ELSE e.published_at END,
    next_attempt_at = clock_timestamp() + CASE
        WHEN u.published THEN interval '0'
        ELSE least(greatest(interval '1 millisecond' * u.rest_ms, interval '1 second' * power(2, least(e.attempts / greatest(u.attempts, 1), 6)) * (0.8 + 0.4 * random())), interval '1 hour')
    END
FROM unnest($3::bigint[], $4::int[], $5::bool[], $6::bool[], $7::bigint[], $8::text[], $9::timestamptz[]) AS u (position, attempts, published, refused, rest_ms, error, due)
WHERE e.sink = $1 AND e.position = u.position AND e.state = 'pending' AND e.next_attempt_at = coalesce(u.due, e.next_attempt_at)
RETURNING e.position, e.state = 'set_aside' AS set_aside, e.next_attempt_at;
