-- name: selectLimits
-- Callers that are restricted to some namespaces do not see the server limit, which counts the
-- steps in
-- all namespaces.
SELECT
    l.kind, l.namespace, l.name, coalesce(l.max_in_progress, 0) AS max_in_progress, coalesce(l.per_second, 0) AS per_second, coalesce(l.burst, 0) AS burst,
    l.by_template, l.changed_at, l.changed_by,
    (SELECT coalesce(sum(n.weight), 0) FROM (
        SELECT h.weight FROM tasker.limit_keys k
        JOIN tasker.limit_slots h ON h.limit_key_id = k.limit_key_id
        WHERE k.limit_id = l.limit_id AND EXISTS (
        SELECT FROM tasker.workflow_steps s
        WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state || '' = 'in_progress' AND s.fence = h.fence
        OFFSET 0 -- one lookup by key per row
    )
        LIMIT 10000 /* MaxLimitCount */
    ) n) AS in_progress,
    (SELECT count(*) FROM (
        SELECT FROM tasker.limit_keys k
        JOIN tasker.held_steps q ON q.limit_key_id = k.limit_key_id
        WHERE k.limit_id = l.limit_id
        LIMIT 10000 /* MaxLimitCount */
    ) n) AS waiting
FROM tasker.limits l
WHERE ($1 = '' OR l.namespace = $1) AND ($2::text[] IS NULL OR l.namespace = ANY ($2))
  AND (l.namespace, l.kind, l.name) > ($3::text, $4::text, $5::text) AND ($7 = '' OR l.kind = $7) AND ($8 = '' OR l.name = $8)
ORDER BY l.namespace, l.kind, l.name
LIMIT $6;

-- name: oneLimit
SELECT
    l.kind, l.namespace, l.name, coalesce(l.max_in_progress, 0) AS max_in_progress, coalesce(l.per_second, 0) AS per_second, coalesce(l.burst, 0) AS burst,
    l.by_template, l.changed_at, l.changed_by,
    (SELECT coalesce(sum(n.weight), 0) FROM (
        SELECT h.weight FROM tasker.limit_keys k
        JOIN tasker.limit_slots h ON h.limit_key_id = k.limit_key_id
        WHERE k.limit_id = l.limit_id AND EXISTS (
        SELECT FROM tasker.workflow_steps s
        WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state || '' = 'in_progress' AND s.fence = h.fence
        OFFSET 0 -- one lookup by key per row
    )
        LIMIT 10000 /* MaxLimitCount */
    ) n) AS in_progress,
    (SELECT count(*) FROM (
        SELECT FROM tasker.limit_keys k
        JOIN tasker.held_steps q ON q.limit_key_id = k.limit_key_id
        WHERE k.limit_id = l.limit_id
        LIMIT 10000 /* MaxLimitCount */
    ) n) AS waiting
FROM tasker.limits l
WHERE (l.namespace, l.kind, l.name) = ($1, $2, $3) AND ($4::text[] IS NULL OR l.namespace = ANY ($4));

-- name: selectLimitKeys
-- Selects those of the first 10,000 keys that have the most waiting steps.
SELECT k.limit_key_id, k.key, w.in_progress, w.waiting,
    CASE WHEN l.per_second IS NOT NULL AND l.burst - extract(epoch FROM nullif(k.full_at, '-infinity') - clock_timestamp()) * l.per_second < 1
        THEN k.full_at - interval '1 second' * ((l.burst - 1) / l.per_second) END AS free_at
FROM tasker.limits l
CROSS JOIN LATERAL (SELECT * FROM tasker.limit_keys k WHERE k.limit_id = l.limit_id ORDER BY k.limit_id, k.key LIMIT 10000) k
CROSS JOIN LATERAL (
    SELECT (SELECT coalesce(sum(n.weight), 0) FROM (SELECT h.weight FROM tasker.limit_slots h WHERE h.limit_key_id = k.limit_key_id AND EXISTS (
        SELECT FROM tasker.workflow_steps s
        WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state || '' = 'in_progress' AND s.fence = h.fence
        OFFSET 0 -- one lookup by key per row
    ) LIMIT 10000 /* MaxLimitCount */) n) AS in_progress,
        (SELECT count(*) FROM (SELECT FROM tasker.held_steps q WHERE q.limit_key_id = k.limit_key_id LIMIT 10000 /* MaxLimitCount */) n) AS waiting
) w
WHERE (l.namespace, l.kind, l.name) = ($1, $2, $3)
ORDER BY w.waiting DESC, w.in_progress DESC, k.key
LIMIT $4;

-- name: selectLimitHolders
SELECT k.limit_key_id, x.task_uuid, x.step_uuid, x.step, x.claimed_at, x.weight
FROM unnest($1::bigint[]) AS k (limit_key_id)
CROSS JOIN LATERAL (
    SELECT s.task_uuid, s.step_uuid, s.name AS step, s.last_attempted_at AS claimed_at, h.weight
    FROM tasker.limit_slots h
    JOIN tasker.workflow_steps s ON s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state || '' = 'in_progress' AND s.fence = h.fence
    WHERE h.limit_key_id = k.limit_key_id AND ($2::text[] IS NULL OR s.namespace = ANY ($2))
    ORDER BY s.last_attempted_at, s.step_uuid
    LIMIT 10 /* MaxLimitHolders */
) x;

-- name: countLimits
SELECT count(*) FROM tasker.limits WHERE namespace = $1 AND (kind, name) <> ($2, $3);

-- name: putLimit
INSERT INTO tasker.limits (kind, namespace, name, max_in_progress, per_second, burst, by_template, changed_by)
VALUES ($1, $2, $3, nullif($4::int, 0), nullif($5::float8, 0), nullif($6::int, 0), false, $7)
ON CONFLICT (namespace, kind, name) DO UPDATE
SET max_in_progress = excluded.max_in_progress, per_second = excluded.per_second, burst = excluded.burst, by_template = false,
    changed_by = excluded.changed_by, changed_at = clock_timestamp()
RETURNING limit_id;

-- name: insertLimitQueues
INSERT INTO tasker.limit_queues (namespace, handler, limit_id)
SELECT $2, CASE WHEN $3 = 'handler' THEN $4 ELSE '' END, $1
WHERE $3 <> 'name'
ON CONFLICT DO NOTHING;

-- name: limitHasQueues
SELECT EXISTS (SELECT FROM tasker.limits l JOIN tasker.limit_queues q USING (limit_id) WHERE (l.namespace, l.kind, l.name) = ($1, 'name', $2));

-- name: deleteLimitKeys
DELETE FROM tasker.limit_keys k USING tasker.limits l
WHERE l.limit_id = k.limit_id AND (l.namespace, l.kind, l.name) = ($1, $2, $3)
RETURNING k.limit_key_id;

-- name: deleteLimitSlots
DELETE FROM tasker.limit_slots WHERE limit_key_id = ANY ($1);

-- name: deleteLimit
DELETE FROM tasker.limits WHERE (namespace, kind, name) = ($1, $2, $3);

-- name: pruneLimitKeys
-- Deletes keys that have neither slots nor waiting steps and were not used by a claim for $1.
-- Checks
-- $3 keys after $2, which bounds its cost. Returns the last key, or 0 at the end.
WITH seen AS MATERIALIZED (
    SELECT k.limit_key_id FROM tasker.limit_keys k WHERE k.limit_key_id > $2 ORDER BY k.limit_key_id LIMIT $3::int
),
old AS MATERIALIZED (
    SELECT k.limit_key_id
    FROM seen s
    CROSS JOIN LATERAL (
        SELECT k.limit_key_id FROM tasker.limit_keys k
        WHERE k.limit_key_id = s.limit_key_id AND k.used_at < clock_timestamp() - $1::interval AND k.full_at < clock_timestamp()
          AND NOT EXISTS (SELECT FROM tasker.held_steps q WHERE q.limit_key_id = k.limit_key_id)
          AND NOT EXISTS (SELECT FROM tasker.limit_slots h WHERE h.limit_key_id = k.limit_key_id AND EXISTS (
        SELECT FROM tasker.workflow_steps s
        WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state || '' = 'in_progress' AND s.fence = h.fence
        OFFSET 0 -- one lookup by key per row
    ))
        FOR UPDATE SKIP LOCKED
    ) k
),
slots AS (DELETE FROM tasker.limit_slots h USING old WHERE h.limit_key_id = old.limit_key_id),
keys AS (DELETE FROM tasker.limit_keys k USING old WHERE k.limit_key_id = old.limit_key_id)
SELECT CASE WHEN count(*) = $3::int THEN max(limit_key_id) ELSE 0 END FROM seen;

-- name: limitedSteps
-- Selects up to $1 parked steps that can return to the queue. Either their limit was deleted, or
-- their
-- keys have free slots. In the latter case, the server has a broker ($2), or the step has been
-- parked for
-- the default queue timeout ($4, in ms), or its queue has no live worker. The scan begins after key
-- $3 and
-- checks only the most urgent steps of each key and queue.
WITH RECURSIVE clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
parked AS (
    (SELECT s.limit_key_id FROM tasker.held_steps s WHERE s.limit_key_id > $3 ORDER BY s.limit_key_id LIMIT 1)
    UNION ALL
    SELECT (SELECT s.limit_key_id FROM tasker.held_steps s WHERE s.limit_key_id > a.limit_key_id ORDER BY s.limit_key_id LIMIT 1)
    FROM parked a
    WHERE a.limit_key_id IS NOT NULL
),
keys AS MATERIALIZED (
    SELECT a.limit_key_id, f.free IS NULL AS deleted, least($1::int, coalesce(f.free, $1::int)) AS places
    FROM (SELECT * FROM parked WHERE limit_key_id IS NOT NULL LIMIT 200 /* maxUnparkKeys */) a
    LEFT JOIN LATERAL tasker.free_slots(a.limit_key_id, NULL) f ON true
),
queues AS (
    (SELECT s.namespace, s.handler FROM tasker.held_steps s WHERE s.namespace >= '' ORDER BY s.namespace, s.handler LIMIT 1)
    UNION ALL
    SELECT n.*
    FROM queues q
    CROSS JOIN LATERAL (
        SELECT s.namespace, s.handler FROM tasker.held_steps s
        WHERE (s.namespace, s.handler) > (q.namespace, q.handler)
        ORDER BY s.namespace, s.handler LIMIT 1
    ) n
),
unserved AS MATERIALIZED (
    SELECT q.namespace, q.handler
    FROM queues q
    WHERE NOT EXISTS (
        SELECT FROM tasker.workers w WHERE w.left_at IS NULL AND w.draining_since IS NULL AND w.last_heartbeat_at >= now() - interval '2 hours'
      AND w.last_heartbeat_at + 3 * w.heartbeat_interval >= clock_timestamp() AND q.namespace = ANY (w.namespaces) AND q.handler = ANY (w.handlers)
    )
)
SELECT coalesce((SELECT max(limit_key_id) FROM keys), 0) AS last, (SELECT count(*) FROM keys) AS keys,
    coalesce(array_agg(x.task_uuid), '{}') AS tasks, coalesce(array_agg(x.step_uuid), '{}') AS steps
FROM (
    SELECT e.task_uuid, e.step_uuid
    FROM keys k
    CROSS JOIN clock c
    CROSS JOIN LATERAL (
        SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.held_at, s.queue_ttl_ms
        FROM tasker.held_steps s
        WHERE s.limit_key_id = k.limit_key_id
        ORDER BY s.limit_key_id, s.priority DESC, s.state_since
        LIMIT greatest(k.places, 0)
    ) e
    WHERE k.deleted
       OR ($2 OR e.held_at <= c.at - interval '1 millisecond' * coalesce(e.queue_ttl_ms, $4)) AND NOT EXISTS (
        SELECT FROM tasker.step_limits(e.task_uuid, e.step_uuid, e.namespace, e.handler) x
        CROSS JOIN LATERAL tasker.free_slots(x.limit_key_id, NULL) f
        WHERE f.free < least(x.weight, f.most)
    )
    UNION
    SELECT e.task_uuid, e.step_uuid
    FROM keys k
    CROSS JOIN unserved u
    CROSS JOIN LATERAL (
        SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler
        FROM tasker.held_steps s
        WHERE s.namespace = u.namespace AND s.handler = u.handler AND s.limit_key_id = k.limit_key_id
        ORDER BY s.namespace, s.handler, s.limit_key_id, s.priority DESC, s.state_since
        LIMIT greatest(k.places, 0)
    ) e
    WHERE NOT EXISTS (
        SELECT FROM tasker.step_limits(e.task_uuid, e.step_uuid, e.namespace, e.handler) x
        CROSS JOIN LATERAL tasker.free_slots(x.limit_key_id, NULL) f
        WHERE f.free < least(x.weight, f.most)
    )
    LIMIT $1::int
) x;

-- name: unparkSteps
-- Returns the steps $1, $2 of locked tasks to the queue with their full queue timeout. An outdated
-- row
-- is only removed. $3 is the default queue timeout in ms, $4 whether to announce steps.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
next AS MATERIALIZED (
    SELECT q.*
    FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
    CROSS JOIN LATERAL (
        SELECT * FROM tasker.held_steps a
        WHERE a.task_uuid = d.task_uuid AND a.step_uuid = d.step_uuid AND a.limit_key_id IS NOT NULL
        FOR UPDATE SKIP LOCKED
    ) q
),
gone AS (
    DELETE FROM tasker.held_steps q USING next n WHERE q.task_uuid = n.task_uuid AND q.step_uuid = n.step_uuid
),
back AS (
    UPDATE tasker.workflow_steps s
    SET expires_at = c.at + interval '1 millisecond' * coalesce(s.queue_ttl_ms, $3), updated_at = c.at
    FROM next n
    CROSS JOIN clock c
    WHERE s.task_uuid = n.task_uuid AND s.step_uuid = n.step_uuid AND s.state || '' = 'enqueued' AND s.state_since = n.state_since
    RETURNING s.namespace, s.handler, s.priority, s.state_since, s.step_uuid, s.task_uuid, s.expires_at, s.queue_ttl_ms, s.inputs_bytes, n.released_by
),
ready AS (
    INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, released_by, due_at)
    SELECT namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, released_by, (
        SELECT min(o.due_at) FROM tasker.deadlines o
        WHERE o.task_uuid = back.task_uuid AND o.step_uuid IN ('00000000-0000-0000-0000-000000000000', back.step_uuid) AND o.orders
    ) FROM back
    ON CONFLICT (namespace, handler, priority, state_since, step_uuid) DO UPDATE -- the step was written manually
    SET released_by = excluded.released_by, expires_at = excluded.expires_at, limit_passed_at = NULL
),
announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM back WHERE $4 ORDER BY task_uuid, step_uuid
)
SELECT DISTINCT namespace FROM back;
