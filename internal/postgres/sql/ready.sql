-- name: removeOutdated
-- Deletes outdated rows at the heads of the queues with namespaces $1 and handlers $2, and the rows
-- of
-- the steps $3, $4 that wait for a limit. Skips locked rows.
WITH RECURSIVE
waiting AS (
    SELECT q.namespace, (
        SELECT s.handler FROM tasker.ready_steps s
        WHERE s.namespace = q.namespace
        ORDER BY s.handler LIMIT 1
    ) AS handler
    FROM unnest($1::text[]) AS q (namespace)
    UNION ALL
    SELECT q.namespace, (
        SELECT s.handler FROM tasker.ready_steps s
        WHERE s.namespace = q.namespace AND s.handler > q.handler
        ORDER BY s.handler LIMIT 1
    )
    FROM waiting q
    WHERE q.handler IS NOT NULL
),
queues AS (SELECT q.namespace, q.handler FROM waiting q WHERE q.handler = ANY ($2::text[])),
outdated AS MATERIALIZED (
    SELECT e.ready_row
    FROM queues q
    CROSS JOIN LATERAL (
        SELECT s.ctid AS ready_row, s.task_uuid, s.step_uuid, s.state_since
        FROM tasker.ready_steps s
        WHERE s.namespace = q.namespace AND s.handler = q.handler
        ORDER BY s.priority DESC, s.state_since
        LIMIT 1000
    ) e
    WHERE NOT EXISTS (
        SELECT FROM tasker.workflow_steps x
        WHERE x.task_uuid = e.task_uuid AND x.step_uuid = e.step_uuid AND x.state || '' = 'enqueued' AND x.state_since = e.state_since
        OFFSET 0 -- one key lookup per row
    )
),
free AS MATERIALIZED (
    SELECT r.ctid AS ready_row FROM outdated o JOIN tasker.ready_steps r ON r.ctid = o.ready_row FOR UPDATE OF r SKIP LOCKED
),
queued AS (
    DELETE FROM tasker.ready_steps r USING free f WHERE r.ctid = f.ready_row RETURNING r.step_uuid
),
limited AS (
    DELETE FROM tasker.held_steps a
    USING (
        SELECT e.task_uuid, e.step_uuid
        FROM unnest($3::uuid[], $4::uuid[]) AS d (task_uuid, step_uuid)
        CROSS JOIN LATERAL (
            SELECT h.task_uuid, h.step_uuid, h.state_since
            FROM tasker.held_steps h
            WHERE h.task_uuid = d.task_uuid AND h.step_uuid = d.step_uuid AND h.limit_key_id IS NOT NULL
            FOR UPDATE SKIP LOCKED
        ) e
        WHERE NOT EXISTS (
        SELECT FROM tasker.workflow_steps x
        WHERE x.task_uuid = e.task_uuid AND x.step_uuid = e.step_uuid AND x.state || '' = 'enqueued' AND x.state_since = e.state_since
        OFFSET 0 -- one key lookup per row
    )
    ) o
    WHERE a.task_uuid = o.task_uuid AND a.step_uuid = o.step_uuid
    RETURNING a.step_uuid
)
SELECT (SELECT count(*) FROM queued) + (SELECT count(*) FROM limited);

-- name: lockEnqueued
SELECT e.step_uuid
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
CROSS JOIN LATERAL (
    SELECT * FROM (
        SELECT r.step_uuid
        FROM tasker.ready_steps r
        WHERE r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid AND r.task_uuid = s.task_uuid
        FOR NO KEY UPDATE
    ) r
    UNION ALL
    SELECT * FROM (
        SELECT h.step_uuid
        FROM tasker.held_steps h
        WHERE h.task_uuid = s.task_uuid AND h.step_uuid = s.step_uuid
        FOR NO KEY UPDATE
    ) h
) e;

-- name: lockEnqueuedOf
SELECT e.step_uuid
FROM tasker.workflow_steps s
CROSS JOIN LATERAL (
    SELECT * FROM (
        SELECT r.step_uuid
        FROM tasker.ready_steps r
        WHERE r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid AND r.task_uuid = s.task_uuid
        FOR NO KEY UPDATE
    ) r
    UNION ALL
    SELECT * FROM (
        SELECT h.step_uuid
        FROM tasker.held_steps h
        WHERE h.task_uuid = s.task_uuid AND h.step_uuid = s.step_uuid
        FOR NO KEY UPDATE
    ) h
) e
WHERE s.task_uuid = ANY ($1) AND s.state || '' = 'enqueued';
