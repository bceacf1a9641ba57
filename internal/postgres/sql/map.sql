-- name: insertMapInputs
-- Stores what the items of a map step are given without the list: a context, or references to
-- results that contain it. Returns the size of the inputs that all items have.
--
-- $1 task, $2 step, $3 context without the list or null, $4 paths of the omitted parts, $5 steps
-- whose results contain the list.
WITH map AS (
    SELECT m.task_uuid, m.step_uuid, octet_length($3::jsonb::text) AS context_bytes, p.steps AS by_reference,
        m.inputs_bytes - coalesce(p.bytes, 0) - CASE WHEN $3 IS NULL THEN 0 ELSE (
            SELECT coalesce(t.context_bytes, octet_length(t.context::text)) FROM tasker.tasks t WHERE t.task_uuid = m.task_uuid
        ) - octet_length($3::jsonb::text) END AS bytes
    FROM tasker.workflow_steps m
    CROSS JOIN LATERAL (
        SELECT array_agg(q.step_uuid) AS steps, sum(q.results_bytes) AS bytes
        FROM tasker.workflow_steps q
        WHERE q.task_uuid = m.task_uuid AND q.step_uuid = ANY (m.parent_uuids) AND q.name = ANY ($5::text[]) AND q.results_bytes > 1024 /* MaxItemListBytes */
    ) p
    WHERE m.task_uuid = $1 AND m.step_uuid = $2 AND m.items_total IS NULL
),
stored AS (
    INSERT INTO tasker.map_inputs (task_uuid, step_uuid, context, context_bytes, omitted, by_reference)
    SELECT task_uuid, step_uuid, $3::jsonb, context_bytes, nullif($4::text[], '{}'), by_reference
    FROM map
    WHERE $3 IS NOT NULL OR by_reference IS NOT NULL
)
SELECT bytes::bigint AS bytes FROM map;

-- name: insertItems
-- Inserts the items of a map step, which are pending.
--
-- $1 task, $2 step, $3 time, $4 item ids, $5 item documents, $6 their sizes in bytes, $7 size of the
-- inputs that all items have, $8 limit or null.
WITH map AS (
    UPDATE tasker.workflow_steps SET items_total = cardinality($4::uuid[]), items_limit = $8::int
    WHERE task_uuid = $1 AND step_uuid = $2
    RETURNING *
)
INSERT INTO tasker.workflow_steps (
    task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since,
    parent_uuids, child_uuids, parents_open, max_attempts, retryable, backoff, backoff_base_ms,
    max_backoff_ms, backoff_jitter, timeout_ms, queue_ttl_ms, created_at, updated_at, inputs_bytes, map_step_uuid, item_ordinal, item
)
SELECT
    m.task_uuid, u.step_uuid, m.name || '[' || u.place - 1 || ']', 'standard', m.namespace, m.handler, m.priority, 'pending', $3,
    m.parent_uuids, ARRAY[m.step_uuid], 0, m.max_attempts, m.retryable, m.backoff, m.backoff_base_ms,
    m.max_backoff_ms, m.backoff_jitter, m.timeout_ms, m.queue_ttl_ms, $3, $3, $7::bigint + u.bytes, m.step_uuid, u.place - 1, u.item::jsonb
FROM map m
CROSS JOIN unnest($4::uuid[], $5::text[], $6::int[]) WITH ORDINALITY AS u (step_uuid, item, bytes, place);

-- name: failedMaps
SELECT m.task_uuid, m.step_uuid, m.name, m.items_total AS total, t.template_uuid
FROM (
    SELECT DISTINCT i.task_uuid, i.map_step_uuid
    FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)
    JOIN tasker.workflow_steps i ON i.task_uuid = u.task_uuid AND i.step_uuid = u.step_uuid
) f
JOIN tasker.workflow_steps m ON m.task_uuid = f.task_uuid AND m.step_uuid = f.map_step_uuid
JOIN tasker.tasks t ON t.task_uuid = m.task_uuid
WHERE m.state = 'pending'
ORDER BY m.task_uuid, m.step_uuid;

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
