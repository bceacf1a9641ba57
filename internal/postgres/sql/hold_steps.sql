-- name: holdNamespace
WITH hold AS MATERIALIZED (
    SELECT h.hold_uuid FROM tasker.holds h WHERE h.hold_uuid = $1 AND h.blocks FOR SHARE
),
due AS MATERIALIZED (
    SELECT s.ctid AS ready_row, $1::uuid AS hold_uuid
    FROM tasker.ready_steps s
    WHERE s.namespace = $2 AND s.released_by IS DISTINCT FROM $1
      AND (SELECT count(*) FROM hold) = 1
    LIMIT $3
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM tasker.ready_steps r USING due d WHERE r.ctid = d.ready_row
    RETURNING d.hold_uuid, r.namespace, r.handler, r.priority, r.state_since, r.step_uuid, r.task_uuid, r.queue_ttl_ms, r.inputs_bytes
),
parked AS (
    INSERT INTO tasker.held_steps (hold_uuid, namespace, handler, priority, state_since, step_uuid, task_uuid, queue_ttl_ms, inputs_bytes)
    SELECT DISTINCT ON (task_uuid, step_uuid) hold_uuid, namespace, handler, priority, state_since, step_uuid, task_uuid, queue_ttl_ms, inputs_bytes FROM gone WHERE NOT NOT EXISTS (
        SELECT FROM tasker.workflow_steps x
        WHERE x.task_uuid = gone.task_uuid AND x.step_uuid = gone.step_uuid AND x.state || '' = 'enqueued' AND x.state_since = gone.state_since
        OFFSET 0 -- one key lookup per row
    ) ORDER BY task_uuid, step_uuid
    ON CONFLICT (task_uuid, step_uuid) DO UPDATE
    SET hold_uuid = excluded.hold_uuid, limit_key_id = NULL, released_by = NULL, state_since = excluded.state_since, priority = excluded.priority,
        queue_ttl_ms = excluded.queue_ttl_ms, inputs_bytes = excluded.inputs_bytes, held_at = clock_timestamp(), counted_until = NULL
)
SELECT count(*) FROM gone;

-- name: holdHandler
WITH hold AS MATERIALIZED (
    SELECT h.hold_uuid FROM tasker.holds h WHERE h.hold_uuid = $1 AND h.blocks FOR SHARE
),
due AS MATERIALIZED (
    SELECT s.ctid AS ready_row, $1::uuid AS hold_uuid
    FROM tasker.ready_steps s
    WHERE s.namespace = $2 AND s.handler = $4 AND s.released_by IS DISTINCT FROM $1
      AND (SELECT count(*) FROM hold) = 1
    LIMIT $3
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM tasker.ready_steps r USING due d WHERE r.ctid = d.ready_row
    RETURNING d.hold_uuid, r.namespace, r.handler, r.priority, r.state_since, r.step_uuid, r.task_uuid, r.queue_ttl_ms, r.inputs_bytes
),
parked AS (
    INSERT INTO tasker.held_steps (hold_uuid, namespace, handler, priority, state_since, step_uuid, task_uuid, queue_ttl_ms, inputs_bytes)
    SELECT DISTINCT ON (task_uuid, step_uuid) hold_uuid, namespace, handler, priority, state_since, step_uuid, task_uuid, queue_ttl_ms, inputs_bytes FROM gone WHERE NOT NOT EXISTS (
        SELECT FROM tasker.workflow_steps x
        WHERE x.task_uuid = gone.task_uuid AND x.step_uuid = gone.step_uuid AND x.state || '' = 'enqueued' AND x.state_since = gone.state_since
        OFFSET 0 -- one key lookup per row
    ) ORDER BY task_uuid, step_uuid
    ON CONFLICT (task_uuid, step_uuid) DO UPDATE
    SET hold_uuid = excluded.hold_uuid, limit_key_id = NULL, released_by = NULL, state_since = excluded.state_since, priority = excluded.priority,
        queue_ttl_ms = excluded.queue_ttl_ms, inputs_bytes = excluded.inputs_bytes, held_at = clock_timestamp(), counted_until = NULL
)
SELECT count(*) FROM gone;

-- name: holdPages
-- Parks the steps of holds that name a template or step, which ready_steps does not store. Checks
-- every
-- row in the pages [$1, $2) of the table.
WITH hold AS MATERIALIZED (
    SELECT * FROM tasker.holds h WHERE h.blocks AND num_nonnulls(h.task_name, h.step_name) > 0 ORDER BY h.hold_uuid FOR SHARE
),
due AS MATERIALIZED (
    SELECT s.ctid AS ready_row, (
        SELECT h.hold_uuid FROM hold h
        WHERE h.hold_uuid IS DISTINCT FROM s.released_by AND h.namespace = s.namespace AND (h.handler IS NULL OR h.handler = s.handler)
      AND (h.task_name IS NULL AND h.step_name IS NULL OR EXISTS (
          SELECT FROM tasker.workflow_steps x
          JOIN tasker.tasks k ON k.task_uuid = x.task_uuid
          WHERE x.task_uuid = s.task_uuid AND x.step_uuid = s.step_uuid
            AND (h.task_name IS NULL OR k.name = h.task_name) AND (h.step_name IS NULL OR h.step_name IN (x.name, split_part(x.name, '[', 1)))
      ))
        ORDER BY h.hold_uuid LIMIT 1
    ) AS hold_uuid
    FROM tasker.ready_steps s
    WHERE s.ctid >= format('(%s,0)', $1::bigint)::tid AND s.ctid < format('(%s,0)', $2::bigint)::tid
      AND EXISTS (SELECT FROM hold h WHERE h.hold_uuid IS DISTINCT FROM s.released_by AND h.namespace = s.namespace AND (h.handler IS NULL OR h.handler = s.handler)
      AND (h.task_name IS NULL AND h.step_name IS NULL OR EXISTS (
          SELECT FROM tasker.workflow_steps x
          JOIN tasker.tasks k ON k.task_uuid = x.task_uuid
          WHERE x.task_uuid = s.task_uuid AND x.step_uuid = s.step_uuid
            AND (h.task_name IS NULL OR k.name = h.task_name) AND (h.step_name IS NULL OR h.step_name IN (x.name, split_part(x.name, '[', 1)))
      )))
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM tasker.ready_steps r USING due d WHERE r.ctid = d.ready_row
    RETURNING d.hold_uuid, r.namespace, r.handler, r.priority, r.state_since, r.step_uuid, r.task_uuid, r.queue_ttl_ms, r.inputs_bytes
),
parked AS (
    INSERT INTO tasker.held_steps (hold_uuid, namespace, handler, priority, state_since, step_uuid, task_uuid, queue_ttl_ms, inputs_bytes)
    SELECT DISTINCT ON (task_uuid, step_uuid) hold_uuid, namespace, handler, priority, state_since, step_uuid, task_uuid, queue_ttl_ms, inputs_bytes FROM gone WHERE NOT NOT EXISTS (
        SELECT FROM tasker.workflow_steps x
        WHERE x.task_uuid = gone.task_uuid AND x.step_uuid = gone.step_uuid AND x.state || '' = 'enqueued' AND x.state_since = gone.state_since
        OFFSET 0 -- one key lookup per row
    ) ORDER BY task_uuid, step_uuid
    ON CONFLICT (task_uuid, step_uuid) DO UPDATE
    SET hold_uuid = excluded.hold_uuid, limit_key_id = NULL, released_by = NULL, state_since = excluded.state_since, priority = excluded.priority,
        queue_ttl_ms = excluded.queue_ttl_ms, inputs_bytes = excluded.inputs_bytes, held_at = clock_timestamp(), counted_until = NULL
)
SELECT count(*) FROM gone;

-- name: readyStepsPages
SELECT pg_relation_size('tasker.ready_steps') / current_setting('block_size')::int;

-- name: heldTasks
-- Selects the tasks of the most urgent held steps, except deferred ones.
SELECT q.task_uuid
FROM tasker.held_steps q
WHERE q.hold_uuid = $1
  AND NOT ($3 AND EXISTS (SELECT FROM tasker.hold_releases r WHERE r.hold_uuid = $1 AND r.task_uuid = q.task_uuid AND r.step_uuid = q.step_uuid))
  AND NOT ($4 AND EXISTS (SELECT FROM tasker.holds h WHERE h.blocks AND h.hold_uuid <> $1 AND h.namespace = q.namespace AND (h.handler IS NULL OR h.handler = q.handler)
      AND (h.task_name IS NULL AND h.step_name IS NULL OR EXISTS (
          SELECT FROM tasker.workflow_steps x
          JOIN tasker.tasks k ON k.task_uuid = x.task_uuid
          WHERE x.task_uuid = q.task_uuid AND x.step_uuid = q.step_uuid
            AND (h.task_name IS NULL OR k.name = h.task_name) AND (h.step_name IS NULL OR h.step_name IN (x.name, split_part(x.name, '[', 1)))
      ))))
  AND NOT EXISTS (SELECT FROM tasker.deferred_work f WHERE f.kind = 'release_hold' AND f.task_uuid = q.task_uuid AND f.retry_at > now())
ORDER BY q.priority DESC, q.state_since, q.step_uuid
LIMIT $2;

-- name: handOver
-- Moves up to $2 steps of hold $1 to other holds that cover them. Prefers active holds to those
-- being
-- released, and then younger holds. A locked hold gets its steps later.
WITH others AS MATERIALIZED (
    SELECT h.*
    FROM tasker.holds h
    JOIN tasker.holds m ON m.hold_uuid = $1 AND m.namespace = h.namespace
    WHERE h.blocks AND (h.state = 'active', h.hold_uuid) > (m.state = 'active', m.hold_uuid)
    ORDER BY h.hold_uuid
    FOR SHARE OF h SKIP LOCKED
),
due AS MATERIALIZED (
    SELECT q.task_uuid, q.step_uuid, (
        SELECT h.hold_uuid FROM others h WHERE h.namespace = q.namespace AND (h.handler IS NULL OR h.handler = q.handler)
      AND (h.task_name IS NULL AND h.step_name IS NULL OR EXISTS (
          SELECT FROM tasker.workflow_steps x
          JOIN tasker.tasks k ON k.task_uuid = x.task_uuid
          WHERE x.task_uuid = q.task_uuid AND x.step_uuid = q.step_uuid
            AND (h.task_name IS NULL OR k.name = h.task_name) AND (h.step_name IS NULL OR h.step_name IN (x.name, split_part(x.name, '[', 1)))
      )) ORDER BY h.state = 'active' DESC, h.hold_uuid DESC LIMIT 1
    ) AS hold_uuid
    FROM tasker.held_steps q
    WHERE q.hold_uuid = $1 AND EXISTS (SELECT FROM others h WHERE h.namespace = q.namespace AND (h.handler IS NULL OR h.handler = q.handler)
      AND (h.task_name IS NULL AND h.step_name IS NULL OR EXISTS (
          SELECT FROM tasker.workflow_steps x
          JOIN tasker.tasks k ON k.task_uuid = x.task_uuid
          WHERE x.task_uuid = q.task_uuid AND x.step_uuid = q.step_uuid
            AND (h.task_name IS NULL OR k.name = h.task_name) AND (h.step_name IS NULL OR h.step_name IN (x.name, split_part(x.name, '[', 1)))
      )))
    LIMIT $2
    FOR UPDATE SKIP LOCKED
),
moved AS (
    UPDATE tasker.held_steps q SET hold_uuid = d.hold_uuid
    FROM due d
    WHERE q.task_uuid = d.task_uuid AND q.step_uuid = d.step_uuid
    RETURNING 1
)
SELECT count(*) FROM moved;

-- name: releaseHeldSteps
-- Returns held steps of locked tasks to the queue with their full queue timeout. Extends the
-- maximum
-- duration of the tasks by the time held. An outdated row is only removed.
--
-- $1 hold, $2 tasks, $3 limit, $4 wave or null, $5 default queue timeout in ms, $6 whether to
-- announce
-- steps, $7 whether to select only steps that the hold has never released.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
next AS MATERIALIZED (
    SELECT q.*
    FROM tasker.held_steps q
    WHERE q.hold_uuid = $1 AND q.task_uuid = ANY ($2)
      AND NOT ($7 AND EXISTS (SELECT FROM tasker.hold_releases r WHERE r.hold_uuid = $1 AND r.task_uuid = q.task_uuid AND r.step_uuid = q.step_uuid))
      AND NOT ($4::int IS NOT NULL AND EXISTS (SELECT FROM tasker.holds h WHERE h.blocks AND h.hold_uuid <> $1 AND h.namespace = q.namespace AND (h.handler IS NULL OR h.handler = q.handler)
      AND (h.task_name IS NULL AND h.step_name IS NULL OR EXISTS (
          SELECT FROM tasker.workflow_steps x
          JOIN tasker.tasks k ON k.task_uuid = x.task_uuid
          WHERE x.task_uuid = q.task_uuid AND x.step_uuid = q.step_uuid
            AND (h.task_name IS NULL OR k.name = h.task_name) AND (h.step_name IS NULL OR h.step_name IN (x.name, split_part(x.name, '[', 1)))
      ))))
    ORDER BY q.priority DESC, q.state_since, q.step_uuid
    LIMIT $3
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM tasker.held_steps q USING next n WHERE q.task_uuid = n.task_uuid AND q.step_uuid = n.step_uuid
),
back AS (
    UPDATE tasker.workflow_steps s
    SET expires_at = c.at + interval '1 millisecond' * coalesce(s.queue_ttl_ms, $5), updated_at = c.at
    FROM next n
    CROSS JOIN clock c
    WHERE s.task_uuid = n.task_uuid AND s.step_uuid = n.step_uuid AND s.state || '' = 'enqueued' AND s.state_since = n.state_since
    RETURNING s.namespace, s.handler, s.priority, s.state_since, s.step_uuid, s.task_uuid, s.expires_at, s.queue_ttl_ms, s.inputs_bytes, s.fence
),
ready AS (
    INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, released_by, due_at)
    SELECT namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, $1, (
        SELECT min(o.due_at) FROM tasker.deadlines o
        WHERE o.task_uuid = back.task_uuid AND o.step_uuid IN ('00000000-0000-0000-0000-000000000000', back.step_uuid) AND o.orders
    ) FROM back
    ON CONFLICT (namespace, handler, priority, state_since, step_uuid) DO UPDATE -- the step was written manually
    SET released_by = excluded.released_by, expires_at = excluded.expires_at, limit_passed_at = NULL
),
spent AS (
    SELECT t.task_uuid, min(coalesce(q.counted_until, q.held_at)) AS since
    FROM tasker.tasks t
    JOIN tasker.held_steps q ON q.task_uuid = t.task_uuid AND q.hold_uuid IS NOT NULL
    JOIN tasker.workflow_steps s ON s.task_uuid = q.task_uuid AND s.step_uuid = q.step_uuid AND s.state || '' = 'enqueued' AND s.state_since = q.state_since
    WHERE t.task_uuid IN (SELECT task_uuid FROM back) AND t.ends_at IS NOT NULL
    GROUP BY t.task_uuid
),
counted AS (
    UPDATE tasker.held_steps q SET counted_until = c.at
    FROM spent x
    CROSS JOIN clock c
    WHERE q.task_uuid = x.task_uuid AND NOT EXISTS (SELECT FROM back p WHERE p.task_uuid = q.task_uuid AND p.step_uuid = q.step_uuid)
),
longer AS (
    UPDATE tasker.tasks t SET ends_at = t.ends_at + (c.at - x.since)
    FROM spent x
    CROSS JOIN clock c
    WHERE t.task_uuid = x.task_uuid
),
announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM back WHERE $6 ORDER BY task_uuid, step_uuid
),
forgotten AS (
    DELETE FROM tasker.deferred_work f USING next p WHERE f.kind = 'release_hold' AND f.task_uuid = p.task_uuid
),
noted AS (
    INSERT INTO tasker.hold_releases (hold_uuid, task_uuid, step_uuid, wave, fence, released_at)
    SELECT $1, b.task_uuid, b.step_uuid, $4::int, b.fence, c.at
    FROM back b
    CROSS JOIN clock c
    WHERE $4::int IS NOT NULL
)
SELECT (SELECT count(*) FROM next) AS scanned, (SELECT count(*) FROM back) AS released,
    coalesce((SELECT array_agg(DISTINCT task_uuid) FROM back), '{}') AS tasks;

-- name: orphanedHold
SELECT (
    SELECT q.hold_uuid FROM tasker.held_steps q
    WHERE q.hold_uuid IS NOT NULL AND NOT EXISTS (SELECT FROM tasker.holds h WHERE h.hold_uuid = q.hold_uuid AND h.ended_at IS NULL)
    LIMIT 1
);

-- name: dropHeld
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
gone AS (
    DELETE FROM tasker.held_steps q
    USING unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
    WHERE q.task_uuid = d.task_uuid AND q.step_uuid = d.step_uuid
    RETURNING q.task_uuid, q.step_uuid
),
spent AS (
    SELECT t.task_uuid, min(coalesce(q.counted_until, q.held_at)) AS since
    FROM tasker.tasks t
    JOIN tasker.held_steps q ON q.task_uuid = t.task_uuid AND q.hold_uuid IS NOT NULL
    JOIN tasker.workflow_steps s ON s.task_uuid = q.task_uuid AND s.step_uuid = q.step_uuid AND s.state || '' = 'enqueued' AND s.state_since = q.state_since
    WHERE t.task_uuid IN (SELECT task_uuid FROM gone) AND t.ends_at IS NOT NULL
    GROUP BY t.task_uuid
),
counted AS (
    UPDATE tasker.held_steps q SET counted_until = c.at
    FROM spent x
    CROSS JOIN clock c
    WHERE q.task_uuid = x.task_uuid AND NOT EXISTS (SELECT FROM gone p WHERE p.task_uuid = q.task_uuid AND p.step_uuid = q.step_uuid)
),
longer AS (
    UPDATE tasker.tasks t SET ends_at = t.ends_at + (c.at - x.since)
    FROM spent x
    CROSS JOIN clock c
    WHERE t.task_uuid = x.task_uuid
),
forgotten AS (
    DELETE FROM tasker.deferred_work f USING gone p WHERE f.kind = 'release_hold' AND f.task_uuid = p.task_uuid
)
SELECT count(*) FROM gone;

-- name: pruneReleaseFailures
DELETE FROM tasker.deferred_work f
USING (
    SELECT d.task_uuid, d.step_uuid FROM tasker.deferred_work d
    WHERE d.kind = 'release_hold' AND NOT EXISTS (SELECT FROM tasker.held_steps q WHERE q.task_uuid = d.task_uuid AND q.hold_uuid IS NOT NULL OFFSET 0)
    LIMIT $1
) o
WHERE f.kind = 'release_hold' AND f.task_uuid = o.task_uuid AND f.step_uuid = o.step_uuid;

-- name: releasedSteps
-- $2 is the time for which a claim is considered evidence that workers claim steps.
WITH working AS MATERIALIZED ( -- waves of which workers claim steps, read once and not for each step
    SELECT DISTINCT o.wave, o.released_at
    FROM tasker.hold_releases o
    JOIN tasker.workflow_steps w ON w.task_uuid = o.task_uuid AND w.step_uuid = o.step_uuid
    WHERE o.hold_uuid = $1
      AND o.released_at >= (SELECT min(n.released_at) - interval '1 minute' FROM tasker.hold_releases n WHERE n.hold_uuid = $1 AND n.outcome IS NULL)
      AND (o.judged_at > clock_timestamp() - $2::interval OR o.outcome IS NULL AND w.state || '' = 'in_progress' AND w.lease_expires_at > clock_timestamp())
)
SELECT r.task_uuid, r.step_uuid, r.wave, r.fence, r.released_at, '' AS outcome, NULL::text AS failure, NULL::timestamptz AS judged_at,
    coalesce(s.state, '') AS step, coalesce(s.fence, 0) AS step_fence, s.reported_fence, s.last_failure_at,
    coalesce(s.state || '' = 'in_progress' AND s.lease_expires_at > clock_timestamp(), false) AS leased,
    EXISTS (SELECT FROM tasker.held_steps q WHERE q.task_uuid = r.task_uuid AND q.step_uuid = r.step_uuid AND q.hold_uuid <> r.hold_uuid) AS elsewhere, clock_timestamp() - r.released_at AS age,
    coalesce(s.state || '' = 'enqueued' AND s.fence = r.fence AND (
        EXISTS (SELECT FROM tasker.held_steps q WHERE q.task_uuid = r.task_uuid AND q.step_uuid = r.step_uuid AND q.limit_key_id IS NOT NULL)
        OR EXISTS (SELECT FROM tasker.queues q WHERE q.namespace = s.namespace AND q.handler = s.handler AND q.busy_at > clock_timestamp() - $2::interval)
        OR EXISTS (
            SELECT FROM working o
            WHERE o.wave = r.wave AND o.released_at BETWEEN r.released_at - interval '1 minute' AND r.released_at + interval '1 minute'
        )
    ), false) AS waits,
    coalesce(s.error ->> 'type', '') AS error_type, coalesce(s.error ->> 'message', '') AS error_message,
    coalesce(s.error ->> 'fingerprint', '') AS error_fingerprint,
    CASE WHEN s.last_failure_at > r.released_at THEN coalesce(tasker.redact_error(s.error) ->> 'message', '') ELSE '' END AS shown
FROM tasker.hold_releases r
LEFT JOIN tasker.workflow_steps s ON s.task_uuid = r.task_uuid AND s.step_uuid = r.step_uuid
WHERE r.hold_uuid = $1 AND r.outcome IS NULL;

-- name: judgeReleases
UPDATE tasker.hold_releases r
SET outcome = u.outcome, failure = nullif(u.failure, ''), judged_at = clock_timestamp()
FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[]) AS u (task_uuid, step_uuid, outcome, failure)
WHERE r.hold_uuid = $1 AND r.task_uuid = u.task_uuid AND r.step_uuid = u.step_uuid AND r.outcome IS NULL;

-- name: reparkSteps
-- Makes holds cover released steps again if no worker has claimed them.
WITH limited AS (
    UPDATE tasker.held_steps q SET released_by = NULL
    FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
    WHERE q.task_uuid = d.task_uuid AND q.step_uuid = d.step_uuid AND q.limit_key_id IS NOT NULL
)
UPDATE tasker.ready_steps r SET released_by = NULL
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
WHERE r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid;

-- name: waveOutcomes
SELECT coalesce(outcome, '') AS outcome, count(*) AS steps
FROM tasker.hold_releases WHERE hold_uuid = $1 AND wave = $2 AND released_at >= $3 GROUP BY outcome;

-- name: parkHeldSteps
-- Parks those of the steps $1, $2 that a hold covers. Locks the holds, so that they cannot end
-- before
-- the parked steps can be released.
WITH hold AS MATERIALIZED (
    SELECT * FROM tasker.holds h
    WHERE h.blocks AND h.namespace IN (
        SELECT s.namespace FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
        JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
    )
    ORDER BY h.hold_uuid FOR SHARE
),
due AS MATERIALIZED (
    SELECT q.ready_row, (
        SELECT h.hold_uuid FROM hold h WHERE h.hold_uuid IS DISTINCT FROM q.released_by AND h.namespace = q.namespace AND (h.handler IS NULL OR h.handler = q.handler)
      AND (h.task_name IS NULL AND h.step_name IS NULL OR EXISTS (
          SELECT FROM tasker.workflow_steps x
          JOIN tasker.tasks k ON k.task_uuid = x.task_uuid
          WHERE x.task_uuid = q.task_uuid AND x.step_uuid = q.step_uuid
            AND (h.task_name IS NULL OR k.name = h.task_name) AND (h.step_name IS NULL OR h.step_name IN (x.name, split_part(x.name, '[', 1)))
      )) ORDER BY h.hold_uuid LIMIT 1
    ) AS hold_uuid
    FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
    CROSS JOIN LATERAL (
        SELECT r.ctid AS ready_row, r.namespace, r.handler, r.task_uuid, r.step_uuid, r.released_by FROM tasker.ready_steps r
        WHERE r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid AND r.task_uuid = s.task_uuid
        FOR UPDATE SKIP LOCKED
    ) q
    WHERE (SELECT count(*) FROM hold) > 0 AND EXISTS (SELECT FROM hold h WHERE h.hold_uuid IS DISTINCT FROM q.released_by AND h.namespace = q.namespace AND (h.handler IS NULL OR h.handler = q.handler)
      AND (h.task_name IS NULL AND h.step_name IS NULL OR EXISTS (
          SELECT FROM tasker.workflow_steps x
          JOIN tasker.tasks k ON k.task_uuid = x.task_uuid
          WHERE x.task_uuid = q.task_uuid AND x.step_uuid = q.step_uuid
            AND (h.task_name IS NULL OR k.name = h.task_name) AND (h.step_name IS NULL OR h.step_name IN (x.name, split_part(x.name, '[', 1)))
      )))
),
gone AS (
    DELETE FROM tasker.ready_steps r USING due d WHERE r.ctid = d.ready_row
    RETURNING d.hold_uuid, r.namespace, r.handler, r.priority, r.state_since, r.step_uuid, r.task_uuid, r.queue_ttl_ms, r.inputs_bytes
),
parked AS (
    INSERT INTO tasker.held_steps (hold_uuid, namespace, handler, priority, state_since, step_uuid, task_uuid, queue_ttl_ms, inputs_bytes)
    SELECT DISTINCT ON (task_uuid, step_uuid) hold_uuid, namespace, handler, priority, state_since, step_uuid, task_uuid, queue_ttl_ms, inputs_bytes FROM gone WHERE NOT NOT EXISTS (
        SELECT FROM tasker.workflow_steps x
        WHERE x.task_uuid = gone.task_uuid AND x.step_uuid = gone.step_uuid AND x.state || '' = 'enqueued' AND x.state_since = gone.state_since
        OFFSET 0 -- one key lookup per row
    ) ORDER BY task_uuid, step_uuid
    ON CONFLICT (task_uuid, step_uuid) DO UPDATE
    SET hold_uuid = excluded.hold_uuid, limit_key_id = NULL, released_by = NULL, state_since = excluded.state_since, priority = excluded.priority,
        queue_ttl_ms = excluded.queue_ttl_ms, inputs_bytes = excluded.inputs_bytes, held_at = clock_timestamp(), counted_until = NULL
)
SELECT task_uuid, step_uuid FROM gone;

-- name: probing
SELECT EXISTS (SELECT FROM tasker.hold_releases r WHERE r.hold_uuid = $1 AND r.outcome IS NULL AND r.wave = 0);
