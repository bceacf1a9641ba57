-- name: expandMap
-- Inserts the items of a map step in the transaction that starts the step, which then waits for its
-- items as if they were parents. If there is a concurrency limit, only the first items are
-- enqueued.
--
-- $1 task, $2 step, $3 queue timeout, $4 whether to announce steps, $5 item ids, $6 item documents,
-- $7 their sizes in bytes, $8 limit or null, $9 context without the list or null, $10 paths of the
-- omitted parts, $11 steps whose results contain the list.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
map AS (
    UPDATE tasker.workflow_steps s
    SET decide_at = NULL, decided_at = c.at, state_since = c.at, updated_at = c.at, items_total = cardinality($5::uuid[]), parents_open = cardinality($5::uuid[]),
        item_under_way = least(cardinality($5::uuid[]), $8::int) - 1,
        item_next = CASE WHEN $8::int IS NOT NULL THEN least(cardinality($5::uuid[]), $8::int) END, items_limit = $8::int,
        items_free = CASE WHEN $8::int IS NOT NULL THEN greatest($8::int - cardinality($5::uuid[]), 0) END
    FROM clock c
    WHERE s.task_uuid = $1 AND s.step_uuid = $2 AND s.state = 'pending' AND s.decide_at IS NOT NULL AND s.items_total IS NULL
    RETURNING s.*
),
given AS (
    SELECT m.task_uuid, m.step_uuid, $9::jsonb AS context, octet_length($9::jsonb::text) AS context_bytes, nullif($10::text[], '{}') AS omitted, p.steps AS by_reference,
        m.inputs_bytes - coalesce(p.bytes, 0) - CASE WHEN $9 IS NULL THEN 0 ELSE (
            SELECT coalesce(t.context_bytes, octet_length(t.context::text)) FROM tasker.tasks t WHERE t.task_uuid = m.task_uuid
        ) - octet_length($9::jsonb::text) END AS inputs_bytes
    FROM map m
    CROSS JOIN LATERAL (
        SELECT array_agg(q.step_uuid) AS steps, sum(q.results_bytes) AS bytes
        FROM tasker.workflow_steps q
        WHERE q.task_uuid = m.task_uuid AND q.step_uuid = ANY (m.parent_uuids) AND q.name = ANY ($11::text[]) AND q.results_bytes > 1024 /* MaxItemListBytes */
    ) p
),
kept AS (
    INSERT INTO tasker.map_inputs (task_uuid, step_uuid, context, context_bytes, omitted, by_reference)
    SELECT task_uuid, step_uuid, context, context_bytes, omitted, by_reference FROM given WHERE num_nonnulls(context, by_reference) > 0
),
made AS (
    INSERT INTO tasker.workflow_steps AS s (
        task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since,
        parent_uuids, child_uuids, parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms,
        max_backoff_ms, backoff_jitter, timeout_ms, queue_ttl_ms, expires_at, created_at, updated_at, inputs_bytes, unwritten, moves_id,
        map_step_uuid, item_ordinal, item
    )
    SELECT
        m.task_uuid, u.step_uuid, m.name || '[' || u.place - 1 || ']', 'standard', m.namespace, m.handler, m.priority, CASE WHEN p.begins THEN 'enqueued' ELSE 'pending' END, c.at,
        m.parent_uuids, ARRAY[m.step_uuid], 0, CASE WHEN p.begins THEN 1 ELSE 0 END, m.max_attempts, m.retryable, m.backoff, m.backoff_base_ms,
        m.max_backoff_ms, m.backoff_jitter, m.timeout_ms, m.queue_ttl_ms, CASE WHEN p.begins THEN c.at + interval '1 millisecond' * coalesce(m.queue_ttl_ms, $3) END,
        c.at, c.at, g.inputs_bytes + u.bytes, CASE WHEN p.begins THEN 1 ELSE 0 END, CASE WHEN p.begins THEN nextval('tasker.step_history_transition_id_seq') END, m.step_uuid, u.place - 1, u.item::jsonb
    FROM map m
    CROSS JOIN given g
    CROSS JOIN clock c
    CROSS JOIN unnest($5::uuid[], $6::text[], $7::int[]) WITH ORDINALITY AS u (step_uuid, item, bytes, place)
    CROSS JOIN LATERAL (SELECT u.place <= coalesce($8::int, u.place) AS begins) p
    RETURNING s.namespace, s.handler, s.priority, s.state_since, s.step_uuid, s.task_uuid, s.expires_at, s.queue_ttl_ms, s.inputs_bytes, s.state
),
ready AS (
    INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, due_at)
    SELECT namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, (
        SELECT min(o.due_at) FROM tasker.deadlines o
        WHERE o.task_uuid = e.task_uuid AND o.step_uuid IN ('00000000-0000-0000-0000-000000000000', e.step_uuid) AND o.orders
    ) FROM (SELECT * FROM made WHERE state = 'enqueued') e
),
announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM made WHERE $4 AND state = 'enqueued' ORDER BY task_uuid, step_uuid
)
SELECT DISTINCT namespace FROM made;

-- name: failedItems
-- Excludes expired items, since these have not failed.
SELECT i.task_uuid, i.step_uuid, i.fence, i.name, i.map_step_uuid, m.name AS of, m.items_total AS total, t.template_uuid
FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)
JOIN tasker.workflow_steps i ON i.task_uuid = u.task_uuid AND i.step_uuid = u.step_uuid
JOIN tasker.workflow_steps m ON m.task_uuid = i.task_uuid AND m.step_uuid = i.map_step_uuid
JOIN tasker.tasks t ON t.task_uuid = i.task_uuid
WHERE i.state = 'error' AND i.next_retry_at IS NULL AND i.awaits_worker_since IS NULL AND i.error ->> 'type' <> 'queue_expiry' AND m.state = 'pending'
ORDER BY i.task_uuid, i.map_step_uuid, i.item_ordinal;

-- name: toleratedItems
-- Scans all items, since an index on the state would prevent heap-only updates.
SELECT count(*) FROM tasker.workflow_steps i WHERE i.task_uuid = $1 AND i.map_step_uuid = $2 AND i.state = 'skipped';

-- name: itemResults
-- Aggregates the results only if they do not exceed $3 bytes.
SELECT x.items, x.tolerated, CASE WHEN x.bytes <= $3 THEN (
    SELECT json_agg(i.results -> 'result' ORDER BY i.item_ordinal)
    FROM tasker.workflow_steps i
    WHERE i.task_uuid = $1 AND i.map_step_uuid = $2
) END AS results
FROM (
    SELECT count(*) AS items, json_agg(i.item_ordinal ORDER BY i.item_ordinal) FILTER (WHERE i.state = 'skipped') AS tolerated, coalesce(sum(2 + coalesce(i.results_bytes, octet_length((i.results -> 'result')::text), 4)), 0) AS bytes
    FROM tasker.workflow_steps i
    WHERE i.task_uuid = $1 AND i.map_step_uuid = $2
) x;

-- name: openItems
SELECT i.task_uuid, i.step_uuid
FROM tasker.workflow_steps i
WHERE i.task_uuid = $1 AND i.map_step_uuid = $2 AND i.state NOT IN ('complete', 'resolved_manually', 'skipped', 'cancelled')
  AND (NOT $3 OR i.state = 'error' AND i.next_retry_at IS NULL)
ORDER BY i.step_uuid;

-- name: itemResultsFrom
-- A page contains at least one result.
--
-- $1 task, $2 step id or $3 step name, $4 first ordinal, $5 maximum number of bytes, $6 maximum
-- number of
-- results.
SELECT m.name, m.items_total AS total, coalesce(p.next, $4::int) AS next, coalesce(p.results, '[]') AS results
FROM (
    SELECT s.task_uuid, s.step_uuid, s.name, s.items_total
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = $1 AND (s.step_uuid = $2 OR s.name = $3)
    ORDER BY (s.step_uuid = $2) DESC
    LIMIT 1
) m
CROSS JOIN LATERAL (
    SELECT max(c.item_ordinal) + 1 AS next, json_agg(i.results -> 'result' ORDER BY i.item_ordinal) AS results
    FROM (
        SELECT x.step_uuid, x.item_ordinal, sum(x.bytes) OVER (ORDER BY x.item_ordinal) AS bytes, row_number() OVER (ORDER BY x.item_ordinal) AS place
        FROM (
            SELECT i.step_uuid, i.item_ordinal, coalesce(i.results_bytes, octet_length((i.results -> 'result')::text), 4) AS bytes
            FROM tasker.workflow_steps i
            WHERE i.task_uuid = m.task_uuid AND i.map_step_uuid = m.step_uuid AND i.item_ordinal >= $4::int
            ORDER BY i.task_uuid, i.map_step_uuid, i.item_ordinal
            LIMIT $6
        ) x
    ) c
    JOIN tasker.workflow_steps i ON i.task_uuid = m.task_uuid AND i.step_uuid = c.step_uuid
    WHERE c.place = 1 OR c.bytes <= $5
) p;
