-- name: loadTasks
-- Also counts the steps of each task by what they mean for its state, but at most $2 of them.
SELECT t.task_uuid, t.state, t.state_since, coalesce(t.phase, '') AS phase, n.*
FROM tasker.tasks t
CROSS JOIN LATERAL (
    SELECT
        count(*) AS total,
        count(*) FILTER (WHERE s.state NOT IN ('complete', 'resolved_manually', 'skipped', 'cancelled')) AS open,
        count(*) FILTER (WHERE s.state IN ('enqueued', 'in_progress', 'enqueued_for_orchestration') OR s.state = 'pending' AND s.decide_at IS NOT NULL) AS active,
        count(*) FILTER (WHERE s.next_retry_at IS NOT NULL) AS retrying,
        count(*) FILTER (WHERE s.state = 'error') AS failed
    FROM (SELECT x.state, x.decide_at, x.next_retry_at FROM tasker.workflow_steps x WHERE x.task_uuid = t.task_uuid LIMIT $2) s
) n
WHERE t.task_uuid = ANY ($1);

-- name: loadClock
-- Runs after the locks were acquired.
SELECT clock_timestamp();

-- name: loadWholeTasks
SELECT x.*
FROM tasker.loaded_steps x
WHERE x.task_uuid = ANY ($1)
ORDER BY x.task_uuid, x.step_uuid;

-- name: loadSteps
-- Selects the given steps and those that depend on them.
SELECT x.*
FROM (
    SELECT d.task_uuid, d.step_uuid FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
    UNION
    SELECT p.task_uuid, c.step_uuid
    FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
    JOIN tasker.workflow_steps p ON p.task_uuid = d.task_uuid AND p.step_uuid = d.step_uuid
    CROSS JOIN LATERAL unnest(p.child_uuids) AS c (step_uuid)
) n
JOIN tasker.loaded_steps x ON x.task_uuid = n.task_uuid AND x.step_uuid = n.step_uuid;

-- name: loadItems
-- Selects the items of map steps that can get the slots of others, and an item of each map step that
-- may be in progress. The last one is searched among 100 items, downward from the previous one, so
-- that each ended item is read once.
--
-- $1 tasks, $2 map steps, $3 number of slots that may become free, $4 items to exclude.
WITH maps AS MATERIALIZED (
    SELECT m.task_uuid, m.step_uuid, m.items_limit, m.items_free + n.items AS free, m.item_next, coalesce(m.item_under_way, m.items_total) AS under_way
    FROM unnest($1::uuid[], $2::uuid[], $3::int[]) AS n (task_uuid, step_uuid, items)
    JOIN tasker.workflow_steps m ON m.task_uuid = n.task_uuid AND m.step_uuid = n.step_uuid
),
needed AS (
    SELECT m.task_uuid, i.step_uuid
    FROM maps m
    CROSS JOIN LATERAL (
        SELECT x.step_uuid
        FROM tasker.workflow_steps x
        WHERE x.task_uuid = m.task_uuid AND x.map_step_uuid = m.step_uuid AND x.item_ordinal >= m.item_next AND x.state = 'pending'
        ORDER BY x.task_uuid, x.map_step_uuid, x.item_ordinal
        LIMIT greatest(m.free, 0)
    ) i
    WHERE m.items_limit IS NOT NULL
    UNION
    SELECT m.task_uuid, a.step_uuid
    FROM maps m
    CROSS JOIN LATERAL (
        SELECT i.step_uuid
        FROM (
            SELECT x.step_uuid, x.state
            FROM tasker.workflow_steps x
            WHERE x.task_uuid = m.task_uuid AND x.map_step_uuid = m.step_uuid AND x.item_ordinal <= m.under_way
            ORDER BY x.task_uuid, x.map_step_uuid, x.item_ordinal DESC
            LIMIT 100
        ) i
        WHERE i.state IN ('enqueued', 'in_progress') AND i.step_uuid <> ALL ($4::uuid[])
        LIMIT 1
    ) a
)
SELECT x.*
FROM needed n
JOIN tasker.loaded_steps x ON x.task_uuid = n.task_uuid AND x.step_uuid = n.step_uuid;

-- name: countSteps
-- Counts the steps of tasks by what they mean for the states of the tasks. Cancelled steps do not
-- count.
SELECT t.task_uuid, coalesce(t.phase, '') AS phase, n.*
FROM tasker.tasks t
CROSS JOIN LATERAL (
    SELECT
        count(*) FILTER (WHERE s.state NOT IN ('complete', 'resolved_manually', 'skipped', 'cancelled')) AS open,
        count(*) FILTER (WHERE s.state IN ('enqueued', 'in_progress', 'enqueued_for_orchestration') OR s.state = 'pending' AND s.decide_at IS NOT NULL) AS active,
        count(*) FILTER (WHERE s.next_retry_at IS NOT NULL) AS retrying,
        count(*) FILTER (WHERE s.state = 'error') AS failed,
        min(s.next_retry_at) AS retry_at,
        min(s.wait_until) AS wait_until,
        coalesce(bool_or(s.xmin = pg_current_xact_id()::xid), false) AS changed
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = t.task_uuid
) n
WHERE t.task_uuid = ANY ($1);

-- name: uncountedAttempts
-- Selects those of the steps whose failed attempt does not count, because it was a probe of an open
-- hold or was in progress when a breaker opened.
SELECT u.step_uuid
FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)
WHERE EXISTS (
    SELECT FROM tasker.hold_releases r
    JOIN tasker.holds h ON h.hold_uuid = r.hold_uuid AND h.ended_at IS NULL
    WHERE r.task_uuid = u.task_uuid AND r.step_uuid = u.step_uuid AND r.outcome IS NULL
) OR (SELECT EXISTS (SELECT FROM tasker.holds b WHERE b.blocks)) AND EXISTS (
    SELECT FROM tasker.holds b
    JOIN tasker.workflow_steps x ON x.task_uuid = u.task_uuid AND x.step_uuid = u.step_uuid
    WHERE b.blocks AND b.kind = 'breaker' AND b.namespace = x.namespace AND b.handler = x.handler AND x.last_attempted_at < b.began_at
);

-- name: leaveQueue
-- Removes the rows of steps that are no longer enqueued. The caller has locked them.
DELETE FROM tasker.ready_steps r
USING unnest($1::text[], $2::text[], $3::int[], $4::timestamptz[], $5::uuid[]) AS s (namespace, handler, priority, state_since, step_uuid)
WHERE r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid;

-- name: moveSteps
-- Stores steps whose state has changed and makes the enqueued ones available to workers. It fails if
-- one of them is no longer in the state in which it was loaded.
--
-- The history precedes the steps, so that the moves of a task are in order. A row that ends an
-- attempt also has its enqueuing and its claim.
--
-- $1 time, $2 queue timeout, $3 whether to announce steps, $4 lease; then the moves and the steps.
WITH log AS (
    INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, actor, reason, detail, created_at,
        moves_id, enqueued_at, claimed_at, operation_uuid)
    SELECT m.task_uuid, m.step_uuid, m.from_state, m.to_state, m.event, m.attempt, m.worker_uuid,
        nullif(m.actor, ''), nullif(m.reason, ''), m.detail::jsonb, $1, m.moves_id, m.enqueued_at, m.claimed_at, m.operation_uuid
    FROM unnest($5::uuid[], $6::uuid[], $7::text[], $8::text[], $9::text[], $10::int[], $11::uuid[], $12::text[], $13::text[], $14::text[], $15::bigint[], $16::timestamptz[], $17::timestamptz[], $18::uuid[])
        WITH ORDINALITY AS m (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, actor, reason, detail, moves_id, enqueued_at, claimed_at, operation_uuid, place)
    ORDER BY m.place
    RETURNING step_uuid
),
moved AS (
    UPDATE tasker.workflow_steps s
    SET state = u.state, state_since = $1, updated_at = $1, fence = u.fence, attempts = u.attempts, parents_open = u.parents_open,
        next_retry_at = u.retry_at, awaits_worker_since = u.awaits_worker_since, queue_expiries = u.queue_expiries,
        decide_at = u.decide_at, decided_at = u.decided_at, wait_until = u.wait_until, remind_at = u.remind_at, reminders = u.reminders,
        worker_uuid = u.worker_uuid, inputs_bytes = u.inputs_bytes, kept_report = u.kept_report::jsonb, skip_reason = u.skip_reason,
        results = CASE WHEN u.result IS NULL THEN s.results ELSE u.result::jsonb END,
        results_bytes = CASE WHEN u.result IS NULL THEN s.results_bytes ELSE nullif(u.result_size, 0) END,
        error = CASE WHEN u.error IS NULL THEN s.error ELSE u.error::jsonb END,
        last_failure_at = CASE WHEN u.state = 'error' THEN $1 ELSE s.last_failure_at END,
        completed_at = CASE WHEN u.state IN ('complete', 'resolved_manually', 'skipped') THEN $1 END,
        attributes_at = CASE WHEN s.attributes_at IS NOT NULL AND u.state IN ('complete', 'resolved_manually', 'skipped') THEN $1 ELSE s.attributes_at END,
        reported_fence = coalesce(u.reported_fence, s.reported_fence),
        report_digest = CASE WHEN u.no_digest THEN NULL ELSE coalesce(u.digest, s.report_digest) END,
        expires_at = CASE WHEN u.state = 'enqueued' THEN $1 + interval '1 millisecond' * coalesce(s.queue_ttl_ms, $2) END,
        timeout_at = CASE WHEN u.state = 'in_progress' THEN $1 + interval '1 millisecond' * s.timeout_ms END,
        lease_expires_at = CASE WHEN u.state = 'in_progress' THEN least($1 + $4::interval, $1 + interval '1 millisecond' * s.timeout_ms) END,
        enqueued_at = CASE WHEN u.state = 'in_progress' THEN $1 ELSE s.enqueued_at END,
        last_attempted_at = CASE WHEN u.state = 'in_progress' THEN $1 ELSE s.last_attempted_at END,
        unwritten = u.unwritten,
        moves_id = CASE WHEN u.unwritten > 0 THEN nextval('tasker.step_history_transition_id_seq') ELSE s.moves_id END,
        items_free = CASE WHEN s.items_limit IS NOT NULL THEN u.items_free END, item_next = CASE WHEN s.items_limit IS NOT NULL THEN u.item_next END
    FROM unnest($19::uuid[], $20::uuid[], $21::text[], $22::bigint[], $23::text[], $24::bigint[], $25::int[], $26::int[], $27::timestamptz[], $28::timestamptz[], $29::int[], $30::timestamptz[], $31::timestamptz[], $32::timestamptz[], $33::timestamptz[], $34::int[], $35::uuid[], $36::bigint[], $37::text[], $38::text[], $39::text[], $40::int[], $41::text[], $42::bigint[], $43::bytea[], $44::bool[], $45::int[], $46::int[], $47::int[])
        AS u (task_uuid, step_uuid, was_state, was_fence, state, fence, attempts, parents_open, retry_at, awaits_worker_since, queue_expiries, decide_at, decided_at, wait_until, remind_at, reminders, worker_uuid, inputs_bytes, kept_report, skip_reason, result, result_size, error, reported_fence, digest, no_digest, unwritten, items_free, item_next)
    WHERE s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid AND s.state = u.was_state AND s.fence = u.was_fence
      AND (SELECT count(*) FROM log) >= 0 -- runs the log first
    RETURNING s.namespace, s.handler, s.priority, s.state_since, s.step_uuid, s.task_uuid, s.expires_at, s.queue_ttl_ms, s.inputs_bytes, s.state
),
ready AS (
    INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, due_at)
    SELECT namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, (
        SELECT min(o.due_at) FROM tasker.deadlines o
        WHERE o.task_uuid = e.task_uuid AND o.step_uuid IN ('00000000-0000-0000-0000-000000000000', e.step_uuid) AND o.orders
    ) FROM moved e WHERE e.state = 'enqueued'
),
announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM moved WHERE $3 AND state = 'enqueued' ORDER BY task_uuid, step_uuid
)
SELECT CASE WHEN count(*) = cardinality($20::uuid[]) THEN count(*) ELSE tasker.step_has_moved() END FROM moved;

-- name: touchSteps
-- Stores what else has changed of steps whose state stays the same.
--
-- $1 time; then the steps.
UPDATE tasker.workflow_steps s
SET updated_at = $1, state_since = CASE WHEN u.begun THEN $1 ELSE s.state_since END, parents_open = u.parents_open, inputs_bytes = u.inputs_bytes,
    decide_at = u.decide_at, decided_at = u.decided_at, wait_until = u.wait_until, remind_at = u.remind_at,
    items_free = CASE WHEN s.items_limit IS NOT NULL THEN u.items_free END, item_next = CASE WHEN s.items_limit IS NOT NULL THEN u.item_next END,
    item_under_way = CASE WHEN s.items_total IS NOT NULL THEN u.item_under_way END
FROM unnest($2::uuid[], $3::uuid[], $4::bool[], $5::int[], $6::bigint[], $7::timestamptz[], $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::int[], $12::int[], $13::int[])
    AS u (task_uuid, step_uuid, begun, parents_open, inputs_bytes, decide_at, decided_at, wait_until, remind_at, items_free, item_next, item_under_way)
WHERE s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid;

-- name: settleTasks
-- Moves tasks to their stable states. A task makes progress if one of its steps was
-- changed. Progress extends the staleness deadline of a task that is in process or waits for a retry,
-- at most once a second. A task that waits for dependencies gets a new deadline only if its next wait
-- changes. A task in error does not return to waiting for a retry automatically (design.md, section
-- 5). A function updates the investigations of tasks that are or were in error.
--
-- $1 tasks, $2 states, $3 earliest retries, $4 earliest ends of waits, $5 whether a step was changed,
-- $6 whether by an operator, $7 actor, $8 reason.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
counted AS MATERIALIZED (
    SELECT t.task_uuid, t.state AS was, t.state_since AS since, t.phase, u.rests,
        h.threshold, u.changed,
        (u.changed OR t.state = 'pending')
        AND (t.state <> u.rests OR u.rests IN ('steps_in_process', 'waiting_for_retry') AND t.state_since < c.at - interval '1 second'
            OR u.rests IN ('steps_in_process', 'waiting_for_retry', 'waiting_for_dependencies') AND t.stale_at - t.state_since <> h.threshold OR u.rests = 'waiting_for_dependencies' AND t.stale_at < u.wait_until AND tt.max_waiting_for_dependencies_minutes IS NULL)
        AND ($6 OR NOT (t.state = 'error' AND u.rests = 'waiting_for_retry')) AS goes
    FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::bool[]) AS u (task_uuid, rests, retry_at, wait_until, changed)
    CROSS JOIN clock c
    JOIN tasker.tasks t ON t.task_uuid = u.task_uuid
    JOIN tasker.task_templates tt ON tt.template_uuid = t.template_uuid
    JOIN tasker.staleness_thresholds st ON st.only_row
    CROSS JOIN LATERAL (
        SELECT tasker.staleness_threshold(u.rests, tt, st) + tasker.retry_rest(u.rests, tt, CASE u.rests WHEN 'waiting_for_dependencies' THEN u.wait_until ELSE u.retry_at END - c.at) AS threshold
    ) h
    WHERE t.state NOT IN ('complete', 'cancelled') AND (t.state <> 'pending' OR t.start_at <= clock_timestamp())
),
moved AS (
    UPDATE tasker.tasks t
    SET state = n.rests, state_since = c.at, updated_at = c.at,
        warn_at = c.at + 0.8 * n.threshold, stale_at = c.at + n.threshold,
        completed_at = CASE WHEN n.rests = 'complete' THEN c.at END, phase = CASE WHEN n.rests <> 'cancelled' THEN t.phase END, outcome = CASE WHEN n.rests = 'cancelled' THEN 'compensated' END
    FROM counted n
    CROSS JOIN clock c
    WHERE t.task_uuid = n.task_uuid AND n.goes
    RETURNING t.task_uuid, n.was, t.state, n.since, t.state_since
),
log AS (
    INSERT INTO tasker.task_history (task_uuid, from_state, to_state, actor, reason, created_at)
    SELECT m.task_uuid, m.was, m.state, nullif($7, ''), nullif($8, ''), m.state_since
    FROM moved m
    WHERE m.was <> m.state
    ORDER BY m.task_uuid
)
SELECT n.task_uuid, n.was, n.since, CASE WHEN n.goes THEN n.rests ELSE n.was END AS state, (
    SELECT tasker.follow_settled_tasks(array_agg(e.task_uuid), array_agg(e.was), array_agg(e.state), $6)
    FROM (
        SELECT m.task_uuid, m.was, m.state FROM moved m WHERE 'error' IN (m.was, m.state)
        UNION ALL
        SELECT s.task_uuid, s.was, s.was FROM counted s WHERE s.was = 'error' AND s.changed AND NOT s.goes
    ) e
    HAVING count(*) > 0
) AS followed
FROM counted n;
