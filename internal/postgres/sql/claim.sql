-- name: claimSteps
-- Leases the most urgent steps in ranges of queues to a worker and returns them with their inputs.
-- Claims nothing if the worker gets no work, or if a limit may apply to one of the queues.
--
-- The claim reads candidates without locks and counts how many it wants with each queue and
-- priority. It then locks that many and skips those that other claims have locked. Rows that are not
-- steps report what else the claim found. Outdated rows of ready_steps are deleted.
--
-- $1 worker, $2 lease, $3 limit, $4 size of all inputs, $5 steps to exclude, $6 candidates to read,
-- $7 operations whose required version the worker has, $8 age from which a step precedes more urgent
-- ones. Then the ranges: $9 namespaces, $10 handlers, $11 lowest and $12 highest priorities, $13
-- times, $14 turns of the namespaces and $15 their increments per step. At last, all $16 namespaces
-- and $17 handlers of the worker.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at, EXISTS (SELECT FROM tasker.claim_conditions) AS held,
        EXISTS (SELECT FROM tasker.limit_queues) AND EXISTS (
            SELECT FROM tasker.limit_queues l
            WHERE l.namespace = ANY (array_append($16::text[], '')) AND l.handler || '' = ANY (array_append($17::text[], ''))
        ) OR EXISTS (SELECT FROM tasker.due_queues) AND EXISTS (
            SELECT FROM tasker.due_queues l WHERE l.namespace = ANY ($16::text[]) AND l.handler || '' = ANY ($17::text[])
        ) AS limited
),
candidate AS MATERIALIZED (
    SELECT e.*, l.turn + l.share * (row_number() OVER (PARTITION BY e.namespace ORDER BY e.old_since, e.priority DESC, e.state_since) - 1) AS turn
    FROM clock c
    CROSS JOIN unnest($9::text[], $10::text[], $11::bigint[], $12::bigint[], $13::timestamptz[], $14::float8[], $15::float8[])
        AS l (namespace, handler, low, high, since, turn, share)
    CROSS JOIN LATERAL (
        SELECT r.*, CASE WHEN r.state_since <= c.at - $8::interval THEN r.state_since ELSE 'infinity' END AS old_since
        FROM (
            (
                SELECT s.namespace, s.handler, s.priority, s.state_since, s.task_uuid, s.step_uuid, s.inputs_bytes
                FROM tasker.ready_steps s
                WHERE l.low = l.high AND s.namespace = l.namespace AND s.handler = l.handler AND s.priority = l.low AND s.state_since >= l.since
                  AND s.step_uuid <> ALL ($5::uuid[])
                  AND NOT (c.held AND tasker.is_held(s.task_uuid, s.step_uuid, s.namespace, s.handler, s.released_by, $7::uuid[]))
                ORDER BY s.state_since
                LIMIT $6::int
            )
            UNION ALL
            (
                SELECT s.namespace, s.handler, s.priority, s.state_since, s.task_uuid, s.step_uuid, s.inputs_bytes
                FROM tasker.ready_steps s
                WHERE l.low < l.high AND s.namespace = l.namespace AND s.handler = l.handler AND s.priority > l.low AND s.priority < l.high
                  AND s.state_since >= l.since AND s.step_uuid <> ALL ($5::uuid[])
                  AND NOT (c.held AND tasker.is_held(s.task_uuid, s.step_uuid, s.namespace, s.handler, s.released_by, $7::uuid[]))
                ORDER BY s.priority DESC, s.state_since
                LIMIT $6::int
            )
        ) r
    ) e
    WHERE NOT c.limited AND EXISTS (SELECT FROM tasker.workers w WHERE w.worker_uuid = $1 AND w.left_at IS NULL AND w.draining_since IS NULL)
    ORDER BY turn, e.old_since, e.priority DESC, e.state_since
    LIMIT $6::int
),
wanted AS MATERIALIZED (
    SELECT s.namespace, s.handler, s.priority, min(s.state_since) AS since, count(*) AS steps
    FROM (
        SELECT x.*, row_number() OVER (ORDER BY x.turn, x.old_since, x.priority DESC, x.state_since) AS place
        FROM candidate x
        WHERE x.inputs_bytes <= 1073741824 /* MaxInputBytes */
    ) s
    GROUP BY s.namespace, s.handler, s.priority
    ORDER BY min(s.place)
),
locked AS MATERIALIZED (
    SELECT e.*
    FROM clock c
    CROSS JOIN wanted w
    CROSS JOIN LATERAL (
        SELECT s.ctid AS ready_row, s.task_uuid, s.step_uuid, s.priority, s.state_since, s.inputs_bytes
        FROM tasker.ready_steps s
        WHERE s.namespace = w.namespace AND s.handler = w.handler AND s.priority = w.priority AND s.state_since >= w.since
          AND s.inputs_bytes <= 1073741824 /* MaxInputBytes */ AND s.step_uuid <> ALL ($5::uuid[])
          AND NOT (c.held AND tasker.is_held(s.task_uuid, s.step_uuid, s.namespace, s.handler, s.released_by, $7::uuid[]))
        ORDER BY s.state_since
        LIMIT w.steps
        FOR NO KEY UPDATE SKIP LOCKED
    ) e
    LIMIT $3::int
),
picked AS MATERIALIZED (
    SELECT l.*
    FROM (
        SELECT r.*, b.bytes, sum(b.bytes) OVER (ORDER BY r.priority DESC, r.state_since, r.step_uuid ROWS UNBOUNDED PRECEDING) AS upto
        FROM locked r
        CROSS JOIN LATERAL (SELECT least(r.inputs_bytes, 6291456 /* maxStepSize */)::int AS bytes) b
    ) l
    WHERE l.upto <= $4::bigint
),
taken AS (
    DELETE FROM tasker.ready_steps r
    USING picked p
    WHERE r.ctid = p.ready_row
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
    FROM (SELECT array_agg(task_uuid) AS tasks, array_agg(step_uuid) AS steps, array_agg(state_since) AS since, array_agg(bytes) AS sizes FROM picked) a
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
)
SELECT 'step' AS kind, s.bytes, s.priority, s.step_uuid, s.task_uuid, s.namespace, s.name, s.handler, s.attempts AS attempt, s.max_attempts,
    s.fence, s.lease_expires_at, s.timeout_at AS deadline, s.item, s.item_ordinal AS index, i.*
FROM claimed s
CROSS JOIN LATERAL tasker.step_inputs(s.task_uuid, s.step_uuid, s.parent_uuids, s.map_step_uuid, s.inputs_bytes, s.checkpointed) i
UNION ALL
SELECT n.kind, 0, 0, n.step_uuid, n.task_uuid, '', '', '', 0, 0, 0, c.at, NULL, NULL, NULL, '', '', n.task_uuid, '', NULL, NULL, NULL, NULL, NULL
FROM clock c
CROSS JOIN LATERAL (
    SELECT 'held' AS kind, $1::uuid AS task_uuid, $1::uuid AS step_uuid WHERE c.held
    UNION ALL
    SELECT 'limited', $1, $1 WHERE c.limited
    UNION ALL
    SELECT 'busy', $1, $1
    WHERE (SELECT least(sum(steps), $3::int) FROM wanted) > (SELECT count(*) FROM locked)
       OR (SELECT count(*) FROM picked) > (SELECT count(*) FROM claimed)
    UNION ALL
    SELECT 'old', $1, $1
    WHERE (SELECT min(priority) FROM candidate WHERE old_since < 'infinity') < (SELECT max(priority) FROM candidate)
    UNION ALL
    SELECT CASE WHEN x.inputs_bytes IS NULL THEN 'unmeasured' ELSE 'too_large' END, x.task_uuid, x.step_uuid
    FROM candidate x
    WHERE x.inputs_bytes IS NULL OR x.inputs_bytes > 1073741824 /* MaxInputBytes */
) n;

-- name: readDirectClaims
-- Selects steps that the current transaction has leased to a worker, with their inputs, and records
-- when their leases expire.
--
-- $1 tasks, $2 steps.
WITH direct AS MATERIALIZED (
    SELECT s.*
    FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
    CROSS JOIN LATERAL (
        SELECT * FROM tasker.workflow_steps x WHERE x.task_uuid = d.task_uuid AND x.step_uuid = d.step_uuid LIMIT 1
    ) s
),
watched AS (
    INSERT INTO tasker.claims (look_at, claimed_at, tasks, steps)
    SELECT least(min(lease_expires_at), min(state_since) + interval '5 seconds'), min(state_since), array_agg(task_uuid), array_agg(step_uuid)
    FROM direct
    GROUP BY state_since
)
SELECT 'step' AS kind, least(s.inputs_bytes, 6291456 /* maxStepSize */)::int AS bytes, s.priority, s.step_uuid, s.task_uuid, s.namespace, s.name, s.handler,
    s.attempts AS attempt, s.max_attempts, s.fence, s.lease_expires_at, s.timeout_at AS deadline, s.item, s.item_ordinal AS index, i.*
FROM direct s
CROSS JOIN LATERAL tasker.step_inputs(s.task_uuid, s.step_uuid, s.parent_uuids, s.map_step_uuid, s.inputs_bytes, s.checkpointed) i;

-- name: findQueueFront
-- Selects whether a worker may claim steps directly: it gets work, and no step is held or may have a
-- limit. Also selects the highest priority of a step that waits in ranges of queues (see claimSteps).
--
-- $1 worker, $2 namespaces, $3 handlers, $4 lowest and $5 highest priorities, $6 times.
SELECT NOT EXISTS (SELECT FROM tasker.claim_conditions) AND NOT (
        EXISTS (SELECT FROM tasker.limit_queues) AND EXISTS (
            SELECT FROM tasker.limit_queues l
            WHERE l.namespace = ANY (array_append($2::text[], '')) AND l.handler || '' = ANY (array_append($3::text[], ''))
        ) OR EXISTS (SELECT FROM tasker.due_queues) AND EXISTS (
            SELECT FROM tasker.due_queues l WHERE l.namespace = ANY ($2::text[]) AND l.handler || '' = ANY ($3::text[])
        )
    ) AND EXISTS (SELECT FROM tasker.workers w WHERE w.worker_uuid = $1 AND w.left_at IS NULL AND w.draining_since IS NULL) AS claims, (
        SELECT max(e.priority)
        FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::timestamptz[]) AS l (namespace, handler, low, high, since)
        CROSS JOIN LATERAL (
            (
                SELECT s.priority
                FROM tasker.ready_steps s
                WHERE l.low = l.high AND s.namespace = l.namespace AND s.handler = l.handler AND s.priority = l.low AND s.state_since >= l.since
                ORDER BY s.state_since
                LIMIT 1
            )
            UNION ALL
            (
                SELECT s.priority
                FROM tasker.ready_steps s
                WHERE l.low < l.high AND s.namespace = l.namespace AND s.handler = l.handler AND s.priority > l.low AND s.priority < l.high
                  AND s.state_since >= l.since
                ORDER BY s.priority DESC, s.state_since
                LIMIT 1
            )
        ) e
    ) AS urgent;

-- name: recordHeartbeat
UPDATE tasker.workers
SET last_heartbeat_at = clock_timestamp()
WHERE worker_uuid = $1 AND left_at IS NULL
RETURNING draining_since IS NOT NULL AS drains, lease;

-- name: extendLeases
-- Never waits for a row lock, which usually belongs to a report. The lease of a locked step keeps
-- its
-- end.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
named AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid, s.fence, s.lease_expires_at
    FROM tasker.workflow_steps s
    JOIN unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS l (task_uuid, step_uuid, fence)
        ON s.task_uuid = l.task_uuid AND s.step_uuid = l.step_uuid AND s.fence = l.fence
    WHERE s.state = 'in_progress' AND s.worker_uuid = $4
),
free AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid
    FROM tasker.workflow_steps s
    JOIN named n USING (task_uuid, step_uuid)
    WHERE s.state = 'in_progress' AND s.worker_uuid = $4 AND s.fence = n.fence
    FOR NO KEY UPDATE OF s SKIP LOCKED
),
extended AS (
    UPDATE tasker.workflow_steps s
    SET lease_expires_at = least(c.at + $5::interval, s.timeout_at)
    FROM free f
    CROSS JOIN clock c
    WHERE s.task_uuid = f.task_uuid AND s.step_uuid = f.step_uuid
    RETURNING s.step_uuid, s.lease_expires_at
)
SELECT n.step_uuid, coalesce(e.lease_expires_at, n.lease_expires_at) AS expires_at
FROM named n
LEFT JOIN extended e USING (step_uuid);

-- name: releaseSteps
-- Does not change the number of attempts, which are counted when a step is enqueued. Like a claim, it
-- needs no lock on the task.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
held AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid, s.unwritten, s.moves_id, s.enqueued_at, s.last_attempted_at
    FROM tasker.workflow_steps s
    JOIN unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS l (task_uuid, step_uuid, fence)
        ON s.task_uuid = l.task_uuid AND s.step_uuid = l.step_uuid AND s.fence = l.fence
    WHERE s.state = 'in_progress' AND s.worker_uuid = $4
    ORDER BY s.task_uuid, s.step_uuid
    FOR NO KEY UPDATE OF s
),
released AS (
    UPDATE tasker.workflow_steps s
    SET state = 'enqueued', state_since = c.at, updated_at = c.at, fence = s.fence + 1,
        worker_uuid = NULL, lease_expires_at = NULL, timeout_at = NULL, unwritten = 0,
        expires_at = c.at + interval '1 millisecond' * coalesce(s.queue_ttl_ms, $5)
    FROM held h
    CROSS JOIN clock c
    WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid
    RETURNING s.namespace, s.handler, s.priority, s.state_since, s.step_uuid, s.task_uuid, s.expires_at, s.queue_ttl_ms, s.inputs_bytes, s.attempts
),
ready AS (
    INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, due_at)
    SELECT namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, (
        SELECT min(o.due_at) FROM tasker.deadlines o
        WHERE o.task_uuid = e.task_uuid AND o.step_uuid IN ('00000000-0000-0000-0000-000000000000', e.step_uuid) AND o.orders
    ) FROM (SELECT * FROM released) e
),
announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM released WHERE $6 ORDER BY task_uuid, step_uuid
),
log AS (
    INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, created_at,
        moves_id, enqueued_at, claimed_at)
    SELECT r.task_uuid, r.step_uuid, 'in_progress', 'enqueued', 'release', r.attempts, $4, r.state_since,
        CASE WHEN h.unwritten > 0 THEN h.moves_id END, CASE WHEN h.unwritten IN (1, 3) THEN h.enqueued_at END, CASE WHEN h.unwritten IN (2, 3) THEN h.last_attempted_at END
    FROM released r
    JOIN held h USING (task_uuid, step_uuid)
)
SELECT step_uuid FROM released;
