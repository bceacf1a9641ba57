-- name: versionedTask
SELECT t.task_uuid, t.template_uuid, t.state, coalesce(t.phase, '') AS phase, t.priority, t.start_at, t.context,
    coalesce(t.context_bytes, octet_length(t.context::text)) AS context_bytes,
    t.phase IS NULL AND EXISTS (
        SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid AND d.resolution_status = 'permanently_failed'
    ) AS written_off
FROM tasker.tasks t
WHERE t.task_uuid = $1;

-- name: changeVersion
-- Requires that the task has not changed and that the new version is not retired. The maximum
-- duration
-- of the new version counts from the start or creation of the task.
WITH moved AS (
    UPDATE tasker.tasks t
    SET template_uuid = tt.template_uuid, version = tt.version, updated_at = clock_timestamp(),
        ends_at = coalesce(t.start_at, t.created_at) + make_interval(mins => tt.max_duration_minutes)
    FROM tasker.task_templates tt
    WHERE t.task_uuid = $1 AND t.template_uuid = $2 AND t.state = $3 AND tt.template_uuid = $4 AND tt.retired_at IS NULL
    RETURNING t.task_uuid, t.state
)
INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, actor, reason, detail, created_at)
SELECT m.task_uuid, m.state, m.state, $5, nullif($6, ''), nullif($7, ''), $8::text::jsonb, clock_timestamp()
FROM moved m;

-- name: requeueSteps
-- Moves enqueued steps to the queues of their new handlers, including held steps. If necessary, the
-- next
-- claim holds them again.
WITH step AS MATERIALIZED (
    SELECT s.namespace, s.handler, s.priority, s.state_since, s.step_uuid, s.task_uuid, s.expires_at, s.queue_ttl_ms, s.inputs_bytes
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = $1 AND s.step_uuid = ANY ($2) AND s.state = 'enqueued'
),
ready AS (
    INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, due_at)
    SELECT namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes, (
        SELECT min(o.due_at) FROM tasker.deadlines o
        WHERE o.task_uuid = e.task_uuid AND o.step_uuid IN ('00000000-0000-0000-0000-000000000000', e.step_uuid) AND o.orders
    ) FROM (SELECT * FROM step) e
),
announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM step WHERE $3 ORDER BY step_uuid
)
SELECT DISTINCT namespace FROM step;

-- name: removeSteps
-- Also removes the due times of the steps, since these could open investigations.
WITH due AS (
    DELETE FROM tasker.deadlines d WHERE d.task_uuid = $1 AND d.step_uuid = ANY ($2)
)
DELETE FROM tasker.workflow_steps s WHERE s.task_uuid = $1 AND s.step_uuid = ANY ($2) AND s.state = 'pending';

-- name: forgetDeferred
DELETE FROM tasker.deferred_work w WHERE w.task_uuid = $1;

-- name: unqueueSteps
DELETE FROM tasker.ready_steps r
USING tasker.workflow_steps s
WHERE s.task_uuid = $1 AND s.step_uuid = ANY ($2) AND s.state = 'enqueued' AND r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid;

-- name: rewriteSteps
-- Treats steps that have not started as new. A failed step whose retry is pending keeps at least
-- one
-- attempt. A decided step remains decided unless the decision failed.
--
-- $1 task, $2 queue timeout; then the steps.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at)
UPDATE tasker.workflow_steps s
SET parent_uuids = u.parents::uuid[], child_uuids = u.children::uuid[], updated_at = c.at,
    parents_open = CASE WHEN s.items_total IS NULL THEN u.parents_open ELSE s.parents_open END,
    inputs_bytes = CASE WHEN s.parent_uuids = u.parents::uuid[] AND u.rewrite < 2 THEN s.inputs_bytes END,
    step_type = CASE WHEN u.rewrite < 2 THEN s.step_type WHEN u.step_type = 'decision' THEN 'standard' ELSE u.step_type END,
    is_decision = CASE WHEN u.rewrite < 2 THEN s.is_decision WHEN u.step_type = 'decision' THEN true END,
    handler = CASE WHEN u.rewrite < 1 THEN s.handler ELSE u.handler END,
    max_attempts = CASE WHEN u.rewrite < 1 THEN s.max_attempts
        ELSE greatest(u.max_attempts, s.attempts + CASE WHEN num_nonnulls(s.next_retry_at, s.awaits_worker_since) > 0 THEN 1 ELSE 0 END) END,
    retryable = CASE WHEN u.rewrite < 1 THEN s.retryable ELSE u.retryable END,
    backoff = CASE WHEN u.rewrite < 1 THEN s.backoff ELSE u.backoff END,
    backoff_base_ms = CASE WHEN u.rewrite < 1 THEN s.backoff_base_ms ELSE u.base_ms END,
    max_backoff_ms = CASE WHEN u.rewrite < 1 THEN s.max_backoff_ms ELSE u.cap_ms END,
    backoff_jitter = CASE WHEN u.rewrite < 1 THEN s.backoff_jitter ELSE u.jitter END,
    timeout_ms = CASE WHEN u.rewrite < 1 THEN s.timeout_ms ELSE nullif(u.timeout_s, 0)::bigint * 1000 END,
    queue_ttl_ms = CASE WHEN u.rewrite < 1 THEN s.queue_ttl_ms ELSE nullif(u.ttl_ms, 0) END,
    remind_first_s = CASE WHEN u.rewrite < 1 THEN s.remind_first_s ELSE nullif(u.remind_s, 0) END,
    join_rule = CASE WHEN u.rewrite = 2 OR u.rewrite = 1 AND s.state = 'error' AND s.join_rule IS NOT NULL AND s.decided_at IS NULL THEN nullif(u.join_rule, '') ELSE s.join_rule END,
    decide_at = CASE WHEN u.rewrite < 2 THEN s.decide_at WHEN u.due THEN coalesce(u.start_at, c.at) END,
    wait_until = CASE WHEN u.rewrite < 2 THEN s.wait_until WHEN u.waits AND u.timeout_s > 0 THEN coalesce(u.start_at, c.at) + interval '1 second' * u.timeout_s END,
    remind_at = CASE WHEN u.rewrite < 2 THEN s.remind_at WHEN u.waits AND u.remind_s > 0 THEN coalesce(u.start_at, c.at) + interval '1 second' * u.remind_s END,
    attributes_at = CASE WHEN u.finds THEN timestamptz 'infinity' END,
    expires_at = CASE WHEN u.rewrite = 1 AND s.state = 'enqueued' THEN c.at + interval '1 millisecond' * coalesce(nullif(u.ttl_ms, 0), $2) ELSE s.expires_at END
FROM unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::int[], $9::int[], $10::bool[], $11::text[], $12::int[], $13::int[], $14::bool[], $15::int[], $16::int[], $17::text[], $18::bool[], $19::bigint[], $20::timestamptz[], $21::bool[], $22::bool[], $23::int[]) AS u (step_uuid, step_type, handler, parents, children, parents_open, max_attempts, retryable, backoff, base_ms, cap_ms, jitter, timeout_s, remind_s, join_rule, finds, ttl_ms, start_at, due, waits, rewrite)
CROSS JOIN clock c
WHERE s.task_uuid = $1 AND s.step_uuid = u.step_uuid;

-- name: rewriteItems
-- Gives map items the parents of their map step. Without MATERIALIZED, the planner might compare
-- all
-- steps of the task with each map step.
WITH maps AS MATERIALIZED (
    SELECT m.step_uuid, m.parent_uuids FROM tasker.workflow_steps m WHERE m.task_uuid = $1 AND m.items_total IS NOT NULL
)
UPDATE tasker.workflow_steps i
SET parent_uuids = m.parent_uuids, inputs_bytes = NULL
FROM maps m
WHERE i.task_uuid = $1 AND i.map_step_uuid = m.step_uuid AND i.parent_uuids <> m.parent_uuids;

-- name: scheduleAttributeRefresh
-- Marks one step, which represents the task.
UPDATE tasker.workflow_steps s
SET attributes_at = clock_timestamp()
WHERE s.task_uuid = $1 AND s.step_uuid = (
    SELECT x.step_uuid FROM tasker.workflow_steps x WHERE x.task_uuid = $1 AND x.map_step_uuid IS NULL ORDER BY x.step_uuid LIMIT 1
);

-- name: openTasksOf
-- Reads at most $3 tasks that have the version, newest first, because most of them may have ended.
SELECT x.task_uuid, x.state NOT IN ('complete', 'cancelled') AS open
FROM (
    SELECT t.task_uuid, t.state
    FROM tasker.tasks t
    WHERE t.template_uuid BETWEEN $1 AND $1 AND t.task_uuid < coalesce($2, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
    ORDER BY t.template_uuid, t.task_uuid DESC
    LIMIT $3::bigint
) x
ORDER BY x.task_uuid DESC;
