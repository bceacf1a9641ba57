-- name: lockPlans
SELECT pg_advisory_xact_lock(hashtextextended('tasker.operations', 0));

-- name: selectedEntries
-- $1 limit. Only those with a failed step or, if $2, with a step that waits for an answer, if $3 is the
-- version of its last worker (or '') and $4 the earliest time of its last failure (or NULL).
SELECT q.dlq_entry_uuid
FROM (
    SELECT d.dlq_entry_uuid, d.task_uuid, d.dlq_reason, d.dlq_timestamp, d.namespace AS namespace_name, d.task_name,
        t.state AS current_state, d.recovered_at, d.step_name, d.error_pattern, d.case_key,
        d.metadata ->> 'assignee' AS assignee, d.priority_at, m.error_message
    FROM tasker.tasks_dlq d
    JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
    LEFT JOIN tasker.case_members m ON m.dlq_entry_uuid = d.dlq_entry_uuid
    WHERE d.resolution_status = 'pending'
) q
WHERE ($3 = '' AND $4::timestamptz IS NULL OR EXISTS (
    SELECT FROM tasker.workflow_steps s
    WHERE s.task_uuid = q.task_uuid
      AND CASE
          WHEN $2::bool THEN s.state = 'pending' AND s.step_type = 'external'
              AND CASE WHEN s.join_rule IS NULL THEN s.parents_open = 0 ELSE s.decided_at IS NOT NULL END
          ELSE s.state = 'error' AND s.next_retry_at IS NULL
      END
      AND ($3 = '' OR EXISTS (
          SELECT FROM tasker.workers w WHERE w.worker_uuid = s.worker_uuid AND w.version = $3
      ))
      AND ($4::timestamptz IS NULL OR s.last_failure_at >= $4)
    OFFSET 0
)) /* conditions */
ORDER BY (q.recovered_at IS NOT NULL), q.priority_at, q.dlq_entry_uuid
LIMIT $1;

-- name: selectedEntriesOf
-- selectedEntries among those whose id or the id of whose task is in $5.
SELECT q.dlq_entry_uuid
FROM (
    SELECT d.dlq_entry_uuid
    FROM unnest($5::uuid[]) AS u (id)
    JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = u.id AND d.resolution_status = 'pending'
    UNION
    SELECT d.dlq_entry_uuid
    FROM unnest($5::uuid[]) AS u (id)
    JOIN tasker.tasks_dlq d ON d.task_uuid = u.id AND d.resolution_status = 'pending'
) c (id)
CROSS JOIN LATERAL (
    SELECT d.dlq_entry_uuid, d.task_uuid, d.dlq_reason, d.dlq_timestamp, d.namespace AS namespace_name, d.task_name,
        t.state AS current_state, d.recovered_at, d.step_name, d.error_pattern, d.case_key,
        d.metadata ->> 'assignee' AS assignee, d.priority_at, m.error_message
    FROM tasker.tasks_dlq d
    JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
    LEFT JOIN tasker.case_members m ON m.dlq_entry_uuid = d.dlq_entry_uuid
    WHERE d.resolution_status = 'pending' AND d.dlq_entry_uuid = c.id
) q
WHERE ($3 = '' AND $4::timestamptz IS NULL OR EXISTS (
    SELECT FROM tasker.workflow_steps s
    WHERE s.task_uuid = q.task_uuid
      AND CASE
          WHEN $2::bool THEN s.state = 'pending' AND s.step_type = 'external'
              AND CASE WHEN s.join_rule IS NULL THEN s.parents_open = 0 ELSE s.decided_at IS NOT NULL END
          ELSE s.state = 'error' AND s.next_retry_at IS NULL
      END
      AND ($3 = '' OR EXISTS (
          SELECT FROM tasker.workers w WHERE w.worker_uuid = s.worker_uuid AND w.version = $3
      ))
      AND ($4::timestamptz IS NULL OR s.last_failure_at >= $4)
    OFFSET 0
)) /* conditions */
ORDER BY (q.recovered_at IS NOT NULL), q.priority_at, q.dlq_entry_uuid
LIMIT $1;

-- name: freeze
-- Creates the items of a plan for the investigations $4. An item is the failed step to which an
-- investigation refers or, if it refers to none, the step that failed last. It is followed by other
-- failed items of the same map step. Steps that belong to another open operation are counted but
-- excluded. The statement reads at most twice the maximum number of items.
--
-- $1 operation, $2 whether it acts on whole tasks, $3 maximum number of items, $5 to $7 as $2 to $4 of
-- selectedEntries.
WITH entry AS MATERIALIZED (
    SELECT d.dlq_entry_uuid, d.task_uuid, d.step_uuid, d.namespace, t.state AS current_state
    FROM unnest($4::uuid[]) WITH ORDINALITY AS u (dlq_entry_uuid, place)
    JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = u.dlq_entry_uuid
    JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
    ORDER BY u.place
),
item AS MATERIALIZED (
    SELECT e.dlq_entry_uuid, e.task_uuid, e.namespace,
        CASE WHEN $2 THEN '00000000-0000-0000-0000-000000000000' ELSE g.step_uuid END AS step_uuid,
        CASE WHEN $2 THEN e.current_state ELSE g.state END AS state, CASE WHEN $2 THEN 0 ELSE g.fence END AS fence,
        o.operation_uuid AS held_by
    FROM entry e
    LEFT JOIN LATERAL (
        SELECT s.step_uuid, s.state, s.fence, s.map_step_uuid
        FROM tasker.workflow_steps s
        WHERE NOT $2 AND s.task_uuid = e.task_uuid
          AND CASE
              WHEN $5::bool THEN s.state = 'pending' AND s.step_type = 'external'
                  AND CASE WHEN s.join_rule IS NULL THEN s.parents_open = 0 ELSE s.decided_at IS NOT NULL END
              ELSE s.state = 'error' AND s.next_retry_at IS NULL
          END
          AND ($6 = '' OR EXISTS (
              SELECT FROM tasker.workers w WHERE w.worker_uuid = s.worker_uuid AND w.version = $6
          ))
          AND ($7::timestamptz IS NULL OR s.last_failure_at >= $7)
        ORDER BY s.step_uuid = e.step_uuid DESC NULLS LAST, s.state_since DESC, s.step_uuid
        LIMIT 1
    ) f ON true
    LEFT JOIN LATERAL (
        SELECT f.step_uuid, f.state, f.fence
        UNION ALL (
            SELECT s.step_uuid, s.state, s.fence
            FROM tasker.workflow_steps s
            WHERE s.task_uuid = e.task_uuid AND s.map_step_uuid = f.map_step_uuid AND s.step_uuid <> f.step_uuid
              AND CASE
                  WHEN $5 THEN s.state = 'pending' AND s.step_type = 'external'
                      AND CASE WHEN s.join_rule IS NULL THEN s.parents_open = 0 ELSE s.decided_at IS NOT NULL END
                  ELSE s.state = 'error' AND s.next_retry_at IS NULL
              END
              AND ($6 = '' OR EXISTS (
                  SELECT FROM tasker.workers w WHERE w.worker_uuid = s.worker_uuid AND w.version = $6
              ))
              AND ($7::timestamptz IS NULL OR s.last_failure_at >= $7)
            ORDER BY s.task_uuid, s.map_step_uuid, s.item_ordinal
            LIMIT $3
        )
    ) g ON true
    LEFT JOIN LATERAL (
        SELECT i.operation_uuid
        FROM tasker.operation_items i
        WHERE i.task_uuid = e.task_uuid AND i.state IN ('planned', 'released', 'running')
          AND ($2 OR i.step_uuid = g.step_uuid OR i.step_uuid = '00000000-0000-0000-0000-000000000000')
        ORDER BY i.step_uuid
        LIMIT 1
    ) o ON true
    LIMIT 2 * $3::bigint + (SELECT count(*) FROM entry)
),
added AS (
    INSERT INTO tasker.operation_items (
        operation_uuid, ordinal, task_uuid, step_uuid, entry_uuid, namespace, expected_state, expected_fence
    )
    SELECT $1, row_number() OVER (ORDER BY c.task_uuid, c.step_uuid), c.task_uuid, c.step_uuid, c.dlq_entry_uuid,
        c.namespace, c.state, c.fence
    FROM (SELECT * FROM item WHERE step_uuid IS NOT NULL AND held_by IS NULL LIMIT $3) c
    ORDER BY c.task_uuid, c.step_uuid
    RETURNING ordinal, namespace, task_uuid, step_uuid, expected_fence
),
held AS (
    SELECT held_by, count(*) AS held FROM item WHERE held_by IS NOT NULL GROUP BY held_by
)
SELECT (SELECT count(*) FROM entry) AS selected,
    (SELECT count(*) FROM item WHERE step_uuid IS NULL) AS without_step,
    (SELECT count(*) FROM added) AS items,
    (SELECT count(*) FROM item WHERE step_uuid IS NOT NULL AND held_by IS NULL) > (SELECT count(*) FROM added) AS more,
    coalesce((SELECT array_agg(DISTINCT namespace ORDER BY namespace) FROM added), '{}') AS namespaces,
    (
        SELECT encode(sha256(convert_to(coalesce(string_agg(
            concat_ws(' ', task_uuid, step_uuid, expected_fence), ',' ORDER BY ordinal
        ), ''), 'UTF8')), 'hex')
        FROM added
    ) AS digest,
    coalesce((SELECT array_agg(held_by ORDER BY held_by) FROM held), '{}') AS operations,
    coalesce((SELECT array_agg(held ORDER BY held_by) FROM held), '{}') AS held;

-- name: countSelected
-- Groups the investigations $1 by the properties that determine which acts apply. $2, $3 as $3, $4 of
-- selectedEntries.
SELECT t.state, d.recovered_at IS NOT NULL AS recovered, d.dlq_reason = 'manual_dlq' AS by_hand, f.failed, f.awaited,
    count(*) AS n
FROM unnest($1::uuid[]) AS u (dlq_entry_uuid)
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = u.dlq_entry_uuid
JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
CROSS JOIN LATERAL (
    SELECT coalesce(bool_or(
            s.state = 'error' AND s.next_retry_at IS NULL
            AND ($2 = '' OR EXISTS (
                SELECT FROM tasker.workers w WHERE w.worker_uuid = s.worker_uuid AND w.version = $2
            ))
            AND ($3::timestamptz IS NULL OR s.last_failure_at >= $3)
        ), false) AS failed,
        coalesce(bool_or(
            s.state = 'pending' AND s.step_type = 'external'
            AND CASE WHEN s.join_rule IS NULL THEN s.parents_open = 0 ELSE s.decided_at IS NOT NULL END
        ), false) AS awaited
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = d.task_uuid AND s.state IN ('error', 'pending')
) f
GROUP BY 1, 2, 3, 4, 5;

-- name: countArrivals
-- Counts investigations that were opened after $1, at most $2.
SELECT count(*)
FROM (
    SELECT
    FROM (
        SELECT d.dlq_entry_uuid, d.task_uuid, d.dlq_reason, d.dlq_timestamp, d.namespace AS namespace_name, d.task_name,
            t.state AS current_state, d.recovered_at, d.step_name, d.error_pattern, d.case_key,
            d.metadata ->> 'assignee' AS assignee, d.priority_at, m.error_message
        FROM tasker.tasks_dlq d
        JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
        LEFT JOIN tasker.case_members m ON m.dlq_entry_uuid = d.dlq_entry_uuid
        WHERE d.resolution_status = 'pending'
    ) q
    WHERE q.dlq_timestamp > $1 /* conditions */
    LIMIT $2
) x;

-- name: insertOperation
INSERT INTO tasker.operations (operation_uuid, request_key, digest, act, arguments, selection, planned_by, reason, namespaces, state, waves,
    rate_per_minute, tolerate, stop_on_new_cause, wave_timeout, expires_at, worker_at_least)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '{}', 'planned', $9, $10, $11, $12, $13, clock_timestamp() + $14::interval, nullif($15, ''));

-- name: setItems
UPDATE tasker.operations
SET namespaces = $2, items = $3, capped = $4, without_step = $5, overlapping = $6, causes = $7, plan_digest = $8
WHERE operation_uuid = $1;

-- name: planners
SELECT operation_uuid, planned_by FROM tasker.operations WHERE operation_uuid = ANY ($1);

-- name: countOpenOperations
SELECT CASE WHEN cardinality(o.namespaces) = 1 THEN o.namespaces[1] ELSE '' END AS namespace, count(*) AS operations
FROM (SELECT namespaces FROM tasker.operations WHERE settled_at IS NULL LIMIT $1) o
GROUP BY 1;

-- name: operationByKey
SELECT operation_uuid, digest FROM tasker.operations WHERE request_key = $1;
