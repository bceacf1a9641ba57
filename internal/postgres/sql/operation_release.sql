-- name: lockDueOperation
SELECT
    o.operation_uuid AS uuid, o.act, o.arguments, o.selection, o.planned_by, o.reason, o.namespaces, o.state, o.items, o.capped, o.without_step,
    o.overlapping, o.plan_digest, o.waves, o.wave, o.rate_per_minute, o.tolerate, o.tolerated_causes, o.stop_on_new_cause, extract(epoch FROM o.wave_timeout)::float8 AS wave_timeout,
    coalesce(o.paused_for, '') AS paused_for, coalesce(o.paused_by, '') AS paused_by, o.paused_at, o.paused_details,
    o.created_at, o.expires_at, coalesce(o.worker_at_least, '') AS worker_at_least, coalesce(o.started_by, '') AS started_by, o.started_at, o.ended_at, o.settled_at, '{}'::text[] AS item_states, '{}'::bigint[] AS item_counts, o.round, o.wave_since, o.causes,
    coalesce(o.next_release_at <= clock_timestamp(), true) AS due, o.next_release_at AS next, clock_timestamp() AS now
FROM tasker.operations o
WHERE o.settled_at IS NULL AND o.state = 'running' AND coalesce(o.next_release_at <= clock_timestamp(), true)
ORDER BY o.next_release_at, o.operation_uuid -- round robin
LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED;

-- name: lockOperation
SELECT
    o.operation_uuid AS uuid, o.act, o.arguments, o.selection, o.planned_by, o.reason, o.namespaces, o.state, o.items, o.capped, o.without_step,
    o.overlapping, o.plan_digest, o.waves, o.wave, o.rate_per_minute, o.tolerate, o.tolerated_causes, o.stop_on_new_cause, extract(epoch FROM o.wave_timeout)::float8 AS wave_timeout,
    coalesce(o.paused_for, '') AS paused_for, coalesce(o.paused_by, '') AS paused_by, o.paused_at, o.paused_details,
    o.created_at, o.expires_at, coalesce(o.worker_at_least, '') AS worker_at_least, coalesce(o.started_by, '') AS started_by, o.started_at, o.ended_at, o.settled_at, '{}'::text[] AS item_states, '{}'::bigint[] AS item_counts, o.round, o.wave_since, o.causes,
    coalesce(o.next_release_at <= clock_timestamp(), true) AS due, o.next_release_at AS next, clock_timestamp() AS now
FROM tasker.operations o
WHERE o.operation_uuid = $1
FOR NO KEY UPDATE;

-- name: nextRelease
SELECT extract(epoch FROM min(o.next_release_at) FILTER (WHERE o.state = 'running') - clock_timestamp())::float8 AS wait, count(*) > 0 AS open
FROM tasker.operations o
WHERE o.settled_at IS NULL;

-- name: progress
WITH c AS MATERIALIZED (
            SELECT i.state, count(*) AS items FROM tasker.operation_items i
            WHERE i.operation_uuid = $1 AND i.round = $2 AND $4 GROUP BY i.state
        )
SELECT (
        SELECT i.ordinal FROM tasker.operation_items i
        WHERE i.operation_uuid = $1 AND i.state BETWEEN 'planned' AND 'planned' ORDER BY i.state, i.ordinal LIMIT 1
    ) IS NOT NULL AS planned,
    (SELECT count(*) FROM (
        SELECT FROM tasker.operation_items i
        WHERE i.operation_uuid = $1 AND i.state BETWEEN 'released' AND 'released' ORDER BY i.state, i.ordinal LIMIT $3
    ) r) + (SELECT count(*) FROM (
        SELECT FROM tasker.operation_items i
        WHERE i.operation_uuid = $1 AND i.state BETWEEN 'running' AND 'running' ORDER BY i.state, i.ordinal LIMIT $3
    ) r) AS in_flight,
    coalesce((SELECT array_agg(n.state) FROM c n), '{}') AS states, coalesce((SELECT array_agg(n.items) FROM c n), '{}') AS counts;

-- name: countFailures
-- The subqueries are executed only if there are rows, which means that an item has failed.
SELECT f.*, (SELECT count(*) FROM tasker.operation_items i WHERE i.operation_uuid = $1 AND i.round = $2 AND i.state <> 'skipped') AS released,
    (SELECT count(*) FROM (
        SELECT FROM tasker.operation_items i WHERE i.operation_uuid = $1 AND i.state BETWEEN 'planned' AND 'planned' ORDER BY i.state, i.ordinal LIMIT $4
    ) p) AS planned
FROM (
    SELECT i.failure_cause AS cause, count(*) AS items, count(*) FILTER (WHERE i.state = 'failed_again') AS failed_again,
        (array_agg(coalesce(i.failure_text, '') ORDER BY i.ordinal))[1] AS text, (array_agg(i.task_uuid ORDER BY i.ordinal))[1] AS task_uuid
    FROM tasker.operation_items i
    WHERE i.operation_uuid = $1 AND i.round = $2 AND i.failure_cause IS NOT NULL AND i.state <> 'verified'
    GROUP BY i.failure_cause
    ORDER BY count(*) DESC, i.failure_cause
    LIMIT $3
) f
ORDER BY f.items DESC, f.cause;

-- name: plannedItems
SELECT i.ordinal, i.task_uuid, i.step_uuid, i.entry_uuid, i.expected_state, i.expected_fence, i.tries
FROM tasker.operation_items i
WHERE i.operation_uuid = $1 AND i.state BETWEEN 'planned' AND 'planned' AND i.ordinal > $2
ORDER BY i.state, i.ordinal
LIMIT $3;

-- name: moveItems
-- Only open items change, and an item is released only once. $1 operation, $2 wave, $3 round; then
-- the
-- changes.
UPDATE tasker.operation_items i
SET state = m.state, outcome = nullif(m.outcome, ''),
    tries = i.tries + CASE WHEN m.state = 'planned' THEN 1 ELSE 0 END,
    wave = CASE WHEN m.released THEN $2 ELSE i.wave END, round = CASE WHEN m.released THEN $3 ELSE i.round END,
    released_fence = CASE WHEN m.released THEN m.fence ELSE i.released_fence END,
    released_at = CASE WHEN m.released THEN clock_timestamp() ELSE i.released_at END,
    failed_at = coalesce(m.failed, i.failed_at), failure_cause = coalesce(nullif(m.cause, ''), i.failure_cause), failure_text = coalesce(nullif(m.text, ''), i.failure_text),
    made_task = coalesce(m.made, i.made_task),
    ended_at = CASE WHEN m.state IN ('verified', 'failed_again', 'skipped', 'aborted') THEN clock_timestamp() END
FROM (
    SELECT m.*, k.row
    FROM unnest($4::int[], $5::text[], $6::text[], $7::bigint[], $8::timestamptz[], $9::text[], $10::text[], $11::uuid[], $12::bool[]) AS m (ordinal, state, outcome, fence, failed, cause, text, made, released)
    CROSS JOIN LATERAL (
        SELECT x.ctid AS row FROM tasker.operation_items x WHERE x.operation_uuid = $1 AND x.ordinal = m.ordinal OFFSET 0
    ) k
) m
WHERE i.ctid = m.row AND CASE WHEN m.released OR m.state = 'planned' THEN i.state = 'planned' ELSE i.state IN ('planned', 'released', 'running') END;

-- name: setNextRelease
UPDATE tasker.operations SET next_release_at = $2 WHERE operation_uuid = $1;

-- name: startWave
UPDATE tasker.operations SET wave = $2, round = round + 1, wave_since = clock_timestamp() WHERE operation_uuid = $1;

-- name: expiredPlans
SELECT operation_uuid FROM tasker.operations WHERE settled_at IS NULL AND state = 'planned' AND expires_at <= clock_timestamp()
ORDER BY created_at LIMIT $1;

-- name: finishOperations
WITH finished AS MATERIALIZED (
    SELECT o.operation_uuid, o.state
    FROM tasker.operations o
    WHERE o.settled_at IS NULL AND o.state IN ('running', 'paused', 'aborted')
      AND (SELECT i.ordinal FROM tasker.operation_items i WHERE i.operation_uuid = o.operation_uuid AND i.state BETWEEN 'planned' AND 'planned' ORDER BY i.state, i.ordinal LIMIT 1) IS NULL
      AND (SELECT i.ordinal FROM tasker.operation_items i WHERE i.operation_uuid = o.operation_uuid AND i.state BETWEEN 'released' AND 'released' ORDER BY i.state, i.ordinal LIMIT 1) IS NULL
      AND (SELECT i.ordinal FROM tasker.operation_items i WHERE i.operation_uuid = o.operation_uuid AND i.state BETWEEN 'running' AND 'running' ORDER BY i.state, i.ordinal LIMIT 1) IS NULL
    FOR NO KEY UPDATE SKIP LOCKED
),
ended AS (
    UPDATE tasker.operations o
    SET state = CASE WHEN f.state = 'aborted' THEN o.state ELSE 'done' END, ended_at = coalesce(o.ended_at, clock_timestamp()), settled_at = clock_timestamp(),
        paused_for = NULL, paused_by = NULL, paused_details = NULL, paused_at = NULL
    FROM finished f
    WHERE o.operation_uuid = f.operation_uuid
    RETURNING o.operation_uuid, f.state
),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT 'tasker', 'operation.done', e.operation_uuid::text, '{}' FROM ended e WHERE e.state <> 'aborted'
)
SELECT e.operation_uuid FROM ended e;

-- name: pruneOperations
WITH old AS MATERIALIZED (
    SELECT operation_uuid FROM tasker.operations WHERE created_at < clock_timestamp() - $1::interval AND settled_at < clock_timestamp() - $1::interval
    ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
),
items AS (DELETE FROM tasker.operation_items i USING old WHERE i.operation_uuid = old.operation_uuid)
DELETE FROM tasker.operations o USING old WHERE o.operation_uuid = old.operation_uuid;

-- name: stepsEnqueuedByTx
SELECT split_part(s.name, '[', 1) AS name, count(*) AS steps
FROM unnest($1::uuid[]) AS u (task_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid
WHERE s.state = 'enqueued' AND s.xmin = pg_current_xact_id()::xid
GROUP BY 1;
