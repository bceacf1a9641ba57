-- name: findClaimConditions
-- Selects whether holds or operations exclude steps from claims, and whether worker $1 gets work.
SELECT EXISTS (SELECT FROM tasker.claim_conditions) AS held,
    EXISTS (SELECT FROM tasker.workers w WHERE w.worker_uuid = $1 AND w.left_at IS NULL AND w.draining_since IS NULL) AS works;

-- name: lockSharedKeys
-- Locks the keys of limits that all steps in the queues with namespaces $1 and handlers $2 share.
SELECT k.limit_key_id
FROM tasker.limit_keys k
WHERE k.key = '' AND k.limit_id = ANY (ARRAY (
    SELECT limit_id FROM tasker.limits WHERE namespace = '' AND kind = 'server' AND name = ''
    UNION ALL
    SELECT limit_id FROM tasker.limits WHERE namespace = ANY ($1::text[]) AND kind = 'namespace' AND name = ''
    UNION ALL
    SELECT limit_id FROM tasker.limits WHERE namespace = ANY ($1::text[]) AND kind = 'handler' AND name = ANY ($2::text[])
))
ORDER BY k.limit_key_id
FOR NO KEY UPDATE;

-- name: countSharedSlots
-- Selects the limits that all steps in the queues with namespaces $1 and handlers $2 share, with the
-- free slots of their keys. Deletes slots whose steps have ended. Follows lockSharedKeys.
WITH shared AS MATERIALIZED (
    SELECT l.limit_id, l.namespace, CASE WHEN l.kind = 'handler' THEN l.name ELSE '' END AS handler, (
            SELECT k.limit_key_id FROM tasker.limit_keys k WHERE k.limit_id = l.limit_id AND k.key = ''
        ) AS limit_key_id
    FROM (
        SELECT limit_id, namespace, kind, name FROM tasker.limits WHERE namespace = '' AND kind = 'server' AND name = ''
        UNION ALL
        SELECT limit_id, namespace, kind, name FROM tasker.limits WHERE namespace = ANY ($1::text[]) AND kind = 'namespace' AND name = ''
        UNION ALL
        SELECT limit_id, namespace, kind, name FROM tasker.limits WHERE namespace = ANY ($1::text[]) AND kind = 'handler' AND name = ANY ($2::text[])
    ) l
),
slot AS MATERIALIZED (
    SELECT h.ctid AS slot_row, h.limit_key_id, h.fence, h.weight, EXISTS (
        SELECT FROM tasker.workflow_steps s
        WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state || '' = 'in_progress' AND s.fence = h.fence
        OFFSET 0 -- one lookup by key per row
    ) AS counts
    FROM tasker.limit_slots h
    WHERE h.limit_key_id = ANY (ARRAY (SELECT limit_key_id FROM shared))
),
ended AS (
    DELETE FROM tasker.limit_slots h USING slot s WHERE NOT s.counts AND h.ctid = s.slot_row AND h.fence = s.fence
)
SELECT u.namespace, u.handler, u.limit_id, coalesce(u.limit_key_id, 0) AS limit_key_id, coalesce(f.free, 0) AS free, coalesce(f.most, 0) AS most, f.retry_ms
FROM (
    SELECT x.*, (SELECT coalesce(sum(s.weight), 0) FROM slot s WHERE s.limit_key_id = x.limit_key_id AND s.counts) AS used
    FROM shared x
    OFFSET 0
) u
LEFT JOIN LATERAL tasker.free_slots(u.limit_key_id, u.used) f ON true;

-- name: findParkedKeys
-- Selects the queues with namespaces $1 and handlers $2 that have parked steps, with the first 64 keys
-- after $3 of such steps. Of many queues, it finds the nonempty ones first. The handler is a range of
-- one value, because only the index by queue has this order.
WITH RECURSIVE size AS MATERIALIZED (SELECT cardinality($1::text[]) * cardinality($2::text[]) > 200 /* manyQueues */ AS many),
waiting AS (
    SELECT n.namespace, (SELECT s.handler FROM tasker.held_steps s WHERE s.namespace = n.namespace ORDER BY s.handler LIMIT 1) AS handler
    FROM size c
    CROSS JOIN unnest($1::text[]) AS n (namespace)
    WHERE c.many
    UNION ALL
    SELECT w.namespace, (
        SELECT s.handler FROM tasker.held_steps s WHERE s.namespace = w.namespace AND s.handler > w.handler ORDER BY s.handler LIMIT 1
    )
    FROM waiting w
    WHERE w.handler IS NOT NULL
),
queue AS (
    SELECT n.namespace, h.handler
    FROM size c
    CROSS JOIN unnest($1::text[]) AS n (namespace)
    CROSS JOIN unnest($2::text[]) AS h (handler)
    WHERE NOT c.many
    UNION ALL
    SELECT w.namespace, w.handler FROM waiting w WHERE w.handler = ANY ($2::text[])
)
SELECT x.*
FROM (
    SELECT q.namespace, q.handler, ARRAY (
            WITH RECURSIVE k AS (
                (
                    SELECT s.limit_key_id
                    FROM tasker.held_steps s
                    WHERE s.namespace = q.namespace AND s.handler >= q.handler AND s.handler <= q.handler AND s.limit_key_id > $3::bigint
                    ORDER BY s.namespace, s.handler, s.limit_key_id
                    LIMIT 1
                )
                UNION ALL
                SELECT (
                    SELECT s.limit_key_id
                    FROM tasker.held_steps s
                    WHERE s.namespace = q.namespace AND s.handler >= q.handler AND s.handler <= q.handler AND s.limit_key_id > k.limit_key_id
                    ORDER BY s.namespace, s.handler, s.limit_key_id
                    LIMIT 1
                )
                FROM k
                WHERE k.limit_key_id IS NOT NULL
            )
            SELECT k.limit_key_id FROM k WHERE k.limit_key_id IS NOT NULL LIMIT 64 /* maxParkedKeys */
        ) AS keys
    FROM queue q
    OFFSET 0
) x
WHERE cardinality(x.keys) > 0;

-- name: parkedKeysOfSteps
-- Selects the keys with parked steps that templates assign to the steps $1, $2.
SELECT DISTINCT n.limit_key_id
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
CROSS JOIN LATERAL tasker.named_limits(d.task_uuid, d.step_uuid) n
WHERE EXISTS (SELECT FROM tasker.held_steps h WHERE h.limit_key_id > 0) AND EXISTS (SELECT FROM tasker.held_steps h WHERE h.limit_key_id = n.limit_key_id);

-- name: selectReadyCandidates
-- Selects the first ready steps of queues by urgency, with their keys. Of many queues, it finds the
-- nonempty ones first.
--
-- $1 namespaces, $2 handlers, $3 steps per queue, $4 steps to exclude, $5 operations whose required
-- version the worker has, $6 age from which a step precedes more urgent ones, $7 steps per queue in
-- which templates assign limits.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT clock_timestamp() - $6::interval AS old_at, EXISTS (SELECT FROM tasker.claim_conditions) AS held,
        cardinality($1::text[]) * cardinality($2::text[]) > 200 /* manyQueues */ AS many
),
waiting AS (
    SELECT n.namespace, (SELECT s.handler FROM tasker.ready_steps s WHERE s.namespace = n.namespace ORDER BY s.handler LIMIT 1) AS handler
    FROM clock c
    CROSS JOIN unnest($1::text[]) AS n (namespace)
    WHERE c.many
    UNION ALL
    SELECT w.namespace, (
        SELECT s.handler FROM tasker.ready_steps s WHERE s.namespace = w.namespace AND s.handler > w.handler ORDER BY s.handler LIMIT 1
    )
    FROM waiting w
    WHERE w.handler IS NOT NULL
),
queue AS MATERIALIZED (
    SELECT q.*, CASE WHEN q.named THEN $7::int ELSE $3::int END AS depth
    FROM (
        SELECT x.*, EXISTS (
                SELECT FROM tasker.limit_queues l
                CROSS JOIN LATERAL (SELECT FROM tasker.limits n WHERE n.limit_id = l.limit_id AND n.kind = 'name' LIMIT 1) n
                WHERE l.namespace = x.namespace AND l.handler = x.handler
                OFFSET 0
            ) AS named
        FROM (
            SELECT n.namespace, h.handler
            FROM clock c
            CROSS JOIN unnest($1::text[]) AS n (namespace)
            CROSS JOIN unnest($2::text[]) AS h (handler)
            WHERE NOT c.many
            UNION ALL
            SELECT w.namespace, w.handler FROM waiting w WHERE w.handler = ANY ($2::text[])
        ) x
        OFFSET 0
    ) q
),
level AS (
    SELECT q.namespace, q.handler, q.named, q.depth, (
        SELECT s.priority FROM tasker.ready_steps s WHERE s.namespace = q.namespace AND s.handler = q.handler ORDER BY s.priority DESC LIMIT 1
    ) AS priority
    FROM queue q
    WHERE $6::interval IS NOT NULL
    UNION ALL
    SELECT l.namespace, l.handler, l.named, l.depth, (
        SELECT s.priority
        FROM tasker.ready_steps s
        WHERE s.namespace = l.namespace AND s.handler = l.handler AND s.priority < l.priority
        ORDER BY s.priority DESC
        LIMIT 1
    )
    FROM level l
    WHERE l.priority IS NOT NULL
),
candidate AS MATERIALIZED (
    SELECT e.*, q.named
    FROM clock c
    CROSS JOIN queue q
    CROSS JOIN LATERAL (
        (
            SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.inputs_bytes, s.due_at
            FROM tasker.ready_steps s
            WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.step_uuid <> ALL ($4::uuid[])
              AND NOT (c.held AND tasker.is_held(s.task_uuid, s.step_uuid, s.namespace, s.handler, s.released_by, $5::uuid[]))
            ORDER BY s.priority DESC, s.state_since
            LIMIT q.depth
        )
        UNION ALL
        (
            SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.inputs_bytes, s.due_at
            FROM tasker.ready_steps s
            WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.due_at IS NOT NULL AND s.step_uuid <> ALL ($4::uuid[])
              AND NOT (c.held AND tasker.is_held(s.task_uuid, s.step_uuid, s.namespace, s.handler, s.released_by, $5::uuid[]))
            ORDER BY s.priority DESC, s.due_at
            LIMIT q.depth
        )
    ) e
    UNION
    SELECT e.*, l.named
    FROM clock c
    CROSS JOIN level l
    CROSS JOIN LATERAL (
        SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.inputs_bytes, s.due_at
        FROM tasker.ready_steps s
        WHERE s.namespace = l.namespace AND s.handler = l.handler AND s.priority = l.priority AND s.state_since <= c.old_at
          AND s.step_uuid <> ALL ($4::uuid[])
          AND NOT (c.held AND tasker.is_held(s.task_uuid, s.step_uuid, s.namespace, s.handler, s.released_by, $5::uuid[]))
        ORDER BY s.state_since
        LIMIT l.depth
    ) e
)
SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.inputs_bytes, s.due_at, NULL::bigint AS parked, coalesce(s.state_since <= c.old_at, false) AS old, n.*
FROM clock c
CROSS JOIN candidate s
CROSS JOIN LATERAL (
    SELECT array_agg(x.limit_id) AS limit_ids, array_agg(x.key) AS keys, array_agg(coalesce(x.limit_key_id, 0)) AS limit_key_ids,
        array_agg(x.weight) AS weights, array_agg(x.most) AS most
    FROM tasker.named_limits(s.task_uuid, s.step_uuid) x
    WHERE s.named
) n;

-- name: selectParkedCandidates
-- Selects the first parked steps of keys that have free slots, with all their keys.
--
-- For each key, $1 namespace, $2 handler, $3 id, $4 the number of steps to read and $5 whether that is
-- the number of its free slots. $6 to $8 are $4 to $6 of selectReadyCandidates.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() - $8::interval AS old_at, EXISTS (SELECT FROM tasker.claim_conditions) AS held
),
open AS MATERIALIZED (
    SELECT k.namespace, k.handler, k.limit_key_id, CASE WHEN k.counted THEN k.depth
        ELSE least(k.depth, coalesce((SELECT f.free FROM tasker.free_slots(k.limit_key_id, NULL) f), k.depth)) END AS free
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::int[], $5::bool[]) AS k (namespace, handler, limit_key_id, depth, counted)
    OFFSET 0
),
candidate AS MATERIALIZED (
    SELECT e.*
    FROM clock c
    CROSS JOIN open k
    CROSS JOIN LATERAL (
        (
            SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.inputs_bytes, s.limit_key_id
            FROM tasker.held_steps s
            WHERE s.namespace = k.namespace AND s.handler = k.handler AND s.limit_key_id = k.limit_key_id AND s.step_uuid <> ALL ($6::uuid[])
              AND NOT (c.held AND tasker.is_held(s.task_uuid, s.step_uuid, s.namespace, s.handler, s.released_by, $7::uuid[]))
            ORDER BY s.priority DESC, s.state_since
            LIMIT k.free
        )
        UNION
        (
            WITH RECURSIVE level AS (
                (
                    SELECT s.priority
                    FROM tasker.held_steps s
                    WHERE s.namespace = k.namespace AND s.handler = k.handler AND s.limit_key_id = k.limit_key_id AND k.free > 0 AND $8::interval IS NOT NULL
                    ORDER BY s.priority DESC
                    LIMIT 1
                )
                UNION ALL
                SELECT (
                    SELECT s.priority
                    FROM tasker.held_steps s
                    WHERE s.namespace = k.namespace AND s.handler = k.handler AND s.limit_key_id = k.limit_key_id AND s.priority < l.priority
                    ORDER BY s.priority DESC
                    LIMIT 1
                )
                FROM level l
                WHERE l.priority IS NOT NULL
            )
            SELECT o.*
            FROM level l
            CROSS JOIN LATERAL (
                SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.inputs_bytes, s.limit_key_id
                FROM tasker.held_steps s
                WHERE s.namespace = k.namespace AND s.handler = k.handler AND s.limit_key_id = k.limit_key_id AND s.priority = l.priority
                  AND s.state_since <= c.old_at AND s.step_uuid <> ALL ($6::uuid[])
                  AND NOT (c.held AND tasker.is_held(s.task_uuid, s.step_uuid, s.namespace, s.handler, s.released_by, $7::uuid[]))
                ORDER BY s.state_since
                LIMIT k.free
            ) o
            ORDER BY o.state_since
            LIMIT k.free
        )
    ) e
    WHERE k.free > 0
)
SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.inputs_bytes, (
        SELECT min(o.due_at) FROM tasker.deadlines o
        WHERE o.task_uuid = s.task_uuid AND o.step_uuid IN ('00000000-0000-0000-0000-000000000000', s.step_uuid) AND o.orders
    ) AS due_at, s.limit_key_id AS parked, coalesce(s.state_since <= c.old_at, false) AS old, n.*
FROM clock c
CROSS JOIN candidate s
CROSS JOIN LATERAL (
    SELECT array_agg(x.limit_id) AS limit_ids, array_agg(x.key) AS keys, array_agg(coalesce(x.limit_key_id, 0)) AS limit_key_ids,
        array_agg(x.weight) AS weights, array_agg(x.most) AS most
    FROM tasker.named_limits(s.task_uuid, s.step_uuid) x
) n;

-- name: selectNamedCandidates
-- Selects those of the steps $3, $4 that are ready in queues with namespaces $1 and handlers $2. $5
-- and $6 are $4 and $5 of selectReadyCandidates.
WITH clock AS MATERIALIZED (SELECT 'enqueued' AS enqueued, EXISTS (SELECT FROM tasker.claim_conditions) AS held),
candidate AS MATERIALIZED (
    SELECT r.*
    FROM clock c
    CROSS JOIN unnest($3::uuid[], $4::uuid[]) AS d (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.state = c.enqueued
    JOIN tasker.ready_steps r ON r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority
        AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid AND r.task_uuid = s.task_uuid
    WHERE s.namespace = ANY ($1::text[]) AND s.handler = ANY ($2::text[]) AND s.step_uuid <> ALL ($5::uuid[])
      AND NOT (c.held AND tasker.is_held(r.task_uuid, r.step_uuid, r.namespace, r.handler, r.released_by, $6::uuid[]))
)
SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.inputs_bytes, s.due_at, NULL::bigint AS parked, false AS old, n.*
FROM candidate s
CROSS JOIN LATERAL (
    SELECT array_agg(x.limit_id) AS limit_ids, array_agg(x.key) AS keys, array_agg(coalesce(x.limit_key_id, 0)) AS limit_key_ids,
        array_agg(x.weight) AS weights, array_agg(x.most) AS most
    FROM tasker.named_limits(s.task_uuid, s.step_uuid) x
) n;

-- name: makeLimitKeys
-- Creates keys of the limits $1. A limit that is being deleted gets none.
WITH kept AS MATERIALIZED (
    SELECT l.limit_id FROM tasker.limits l WHERE l.limit_id = ANY ($1::bigint[]) ORDER BY l.limit_id FOR KEY SHARE
)
INSERT INTO tasker.limit_keys (limit_id, key)
SELECT DISTINCT u.limit_id, u.key
FROM unnest($1::bigint[], $2::text[]) AS u (limit_id, key)
JOIN kept l ON l.limit_id = u.limit_id
ORDER BY u.limit_id, u.key
ON CONFLICT (limit_id, key) DO NOTHING;

-- name: lockLimitKeys
SELECT k.limit_key_id FROM tasker.limit_keys k WHERE k.limit_key_id = ANY ($1::bigint[]) ORDER BY k.limit_key_id FOR NO KEY UPDATE;

-- name: lockFreeLimitKeys
SELECT k.limit_key_id FROM tasker.limit_keys k WHERE k.limit_key_id = ANY ($1::bigint[]) ORDER BY k.limit_key_id FOR NO KEY UPDATE SKIP LOCKED;

-- name: countFreeSlots
-- Selects the free slots of the keys $1. The count is exact for keys that this transaction locked
-- before.
SELECT u.limit_key_id, f.free, f.most, f.retry_ms
FROM unnest($1::bigint[]) AS u (limit_key_id)
CROSS JOIN LATERAL tasker.free_slots(u.limit_key_id, NULL) f;

-- name: leaseLimitedSteps
-- Leases steps that were admitted to a worker, takes their slots and returns them with their inputs.
-- Skips steps that other claims have locked, and those that are held since they were selected.
-- Outdated rows of ready_steps are deleted.
--
-- $1 worker, $2 lease. Then the steps: $3 tasks, $4 steps, $5 namespaces, $6 handlers,
-- $7 priorities, $8 times, $9 whether they are parked, $10 sizes. Then their slots: $11 steps, $12
-- keys, $13 weights. At last, $14 operations whose required version the worker has.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at, EXISTS (SELECT FROM tasker.claim_conditions) AS held),
admitted AS MATERIALIZED (
    SELECT a.*
    FROM unnest($3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::int[], $8::timestamptz[], $9::bool[], $10::int[])
        AS a (task_uuid, step_uuid, namespace, handler, priority, state_since, parked, bytes)
    WHERE EXISTS (SELECT FROM tasker.workers w WHERE w.worker_uuid = $1 AND w.left_at IS NULL AND w.draining_since IS NULL)
),
from_ready AS MATERIALIZED (
    SELECT q.ready_row, a.task_uuid, a.step_uuid, a.state_since, a.bytes
    FROM clock c
    CROSS JOIN admitted a
    CROSS JOIN LATERAL (
        SELECT r.ctid AS ready_row
        FROM tasker.ready_steps r
        WHERE r.namespace = a.namespace AND r.handler = a.handler AND r.priority = a.priority AND r.state_since = a.state_since
          AND r.step_uuid = a.step_uuid AND r.task_uuid = a.task_uuid
          AND NOT (c.held AND tasker.is_held(r.task_uuid, r.step_uuid, r.namespace, r.handler, r.released_by, $14::uuid[]))
        FOR NO KEY UPDATE SKIP LOCKED
    ) q
    WHERE NOT a.parked
),
from_parked AS MATERIALIZED (
    SELECT q.task_uuid, q.step_uuid, q.state_since, a.bytes
    FROM clock c
    CROSS JOIN admitted a
    CROSS JOIN LATERAL (
        SELECT h.task_uuid, h.step_uuid, h.state_since
        FROM tasker.held_steps h
        WHERE h.task_uuid = a.task_uuid AND h.step_uuid = a.step_uuid AND h.limit_key_id IS NOT NULL
          AND NOT (c.held AND tasker.is_held(h.task_uuid, h.step_uuid, h.namespace, h.handler, h.released_by, $14::uuid[]))
        FOR NO KEY UPDATE SKIP LOCKED
    ) q
    WHERE a.parked
),
taken AS (
    DELETE FROM tasker.ready_steps r USING from_ready p WHERE r.ctid = p.ready_row
),
unparked AS (
    DELETE FROM tasker.held_steps h USING from_parked p WHERE h.task_uuid = p.task_uuid AND h.step_uuid = p.step_uuid
),
claimed AS (
    -- Passed through arrays, because the planner then expects few rows.
    UPDATE tasker.workflow_steps s
    SET state = 'in_progress', state_since = c.at, updated_at = c.at, last_attempted_at = c.at,
        fence = s.fence + 1, worker_uuid = $1, expires_at = NULL, queue_expiries = 0,
        unwritten = CASE WHEN s.unwritten = 1 THEN 3 ELSE 2 END,
        moves_id = CASE WHEN s.unwritten = 1 THEN s.moves_id ELSE nextval('tasker.step_history_transition_id_seq') END,
        enqueued_at = CASE WHEN s.unwritten = 1 THEN s.state_since END,
        timeout_at = c.at + interval '1 millisecond' * s.timeout_ms,
        lease_expires_at = least(c.at + $2::interval, c.at + interval '1 millisecond' * s.timeout_ms)
    FROM (
        SELECT array_agg(p.task_uuid) AS tasks, array_agg(p.step_uuid) AS steps, array_agg(p.state_since) AS since, array_agg(p.bytes) AS sizes
        FROM (
            SELECT task_uuid, step_uuid, state_since, bytes FROM from_ready
            UNION ALL
            SELECT task_uuid, step_uuid, state_since, bytes FROM from_parked
        ) p
    ) a
    CROSS JOIN LATERAL unnest(a.tasks, a.steps, a.since, a.sizes) AS p (task_uuid, step_uuid, state_since, bytes)
    CROSS JOIN clock c
    WHERE s.task_uuid = p.task_uuid AND s.step_uuid = p.step_uuid AND s.state || '' = 'enqueued' AND s.state_since = p.state_since
    RETURNING s.step_uuid, s.task_uuid, s.namespace, s.name, s.handler, s.priority, s.attempts, s.max_attempts, s.fence, s.lease_expires_at, s.timeout_at,
        s.parent_uuids, s.state_since, s.inputs_bytes, s.map_step_uuid, s.item, s.item_ordinal, s.checkpointed, p.bytes
),
watched AS (
    INSERT INTO tasker.claims (look_at, claimed_at, tasks, steps)
    SELECT least(min(lease_expires_at), min(state_since) + interval '5 seconds'), min(state_since), array_agg(task_uuid), array_agg(step_uuid)
    FROM claimed
    HAVING count(*) > 0
),
placed AS (
    INSERT INTO tasker.limit_slots (limit_key_id, task_uuid, step_uuid, fence, weight)
    SELECT DISTINCT n.limit_key_id, s.task_uuid, s.step_uuid, s.fence, n.weight -- a step can have an outdated row besides
    FROM claimed s
    JOIN unnest($11::uuid[], $12::bigint[], $13::int[]) AS n (step_uuid, limit_key_id, weight) ON n.step_uuid = s.step_uuid
    ON CONFLICT (limit_key_id, task_uuid, step_uuid) DO UPDATE SET fence = excluded.fence, weight = excluded.weight
    RETURNING limit_key_id, weight
),
charged AS (
    UPDATE tasker.limit_keys k
    SET full_at = CASE WHEN u.per_second IS NULL THEN k.full_at
            ELSE greatest(k.full_at, c.at) + interval '1 second' * (u.weight / u.per_second) END,
        used_at = CASE WHEN k.used_at < c.at - interval '5 minutes' THEN c.at ELSE k.used_at END
    FROM (
        SELECT p.limit_key_id, p.weight, l.per_second
        FROM (SELECT limit_key_id, sum(weight) AS weight FROM placed GROUP BY limit_key_id) p
        CROSS JOIN LATERAL (
            SELECT l.per_second
            FROM tasker.limit_keys x
            JOIN tasker.limits l ON l.limit_id = x.limit_id
            WHERE x.limit_key_id = p.limit_key_id
            LIMIT 1
        ) l
    ) u
    CROSS JOIN clock c
    WHERE k.limit_key_id = u.limit_key_id AND (u.per_second IS NOT NULL OR k.used_at < c.at - interval '5 minutes')
)
SELECT 'step' AS kind, s.bytes, s.priority, s.step_uuid, s.task_uuid, s.namespace, s.name, s.handler, s.attempts AS attempt, s.max_attempts,
    s.fence, s.lease_expires_at, s.timeout_at AS deadline, s.item, s.item_ordinal AS index, i.*
FROM claimed s
CROSS JOIN LATERAL tasker.step_inputs(s.task_uuid, s.step_uuid, s.parent_uuids, s.map_step_uuid, s.inputs_bytes, s.checkpointed) i;

-- name: deleteEndedSlots
-- Deletes the slots of locked keys whose steps have ended.
DELETE FROM tasker.limit_slots h
WHERE h.limit_key_id = ANY ($1::bigint[]) AND NOT EXISTS (
    SELECT FROM tasker.workflow_steps s
    WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state || '' = 'in_progress' AND s.fence = h.fence
    OFFSET 0 -- one lookup by key per row
);
