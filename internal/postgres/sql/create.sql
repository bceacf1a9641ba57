-- name: insertTasks
-- $1 lock timeout, $2 return contexts; then the tasks. If a template was replaced or retired, its
-- template_uuid is NULL, which makes the transaction fail.
INSERT INTO tasker.tasks (
    task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, ends_at,
    priority, context, initiator, source_system, reason, tags, correlation_id, parent_correlation_id,
    idempotency_key, request_digest, recreated_from, start_at, created_at, updated_at, context_bytes,
    parent_task_uuid, parent_step_uuid, depth, schedule_uuid
)
SELECT
    u.task_uuid, tt.template_uuid, tt.namespace, tt.name, tt.version, u.state, now(),
    now() + 0.8 * h.threshold, now() + h.threshold,
    coalesce(u.start_at, now()) + make_interval(mins => tt.max_duration_minutes),
    u.priority, u.context::jsonb, u.initiator, u.source_system, u.reason, u.tags::text[], u.correlation_id,
    u.parent_correlation_id, nullif(u.idempotency_key, ''), u.request_digest, u.recreated_from, u.start_at, now(), now(),
    u.context_bytes, u.parent_task_uuid, u.parent_step_uuid, u.depth, u.schedule_uuid
FROM set_config('lock_timeout', $1, true)
CROSS JOIN unnest(
    $3::uuid[], $4::uuid[], $5::int[], $6::text[], $7::int[], $8::text[], $9::text[], $10::text[], $11::text[],
    $12::text[], $13::text[], $14::text[], $15::text[], $16::bytea[], $17::uuid[], $18::timestamptz[], $19::int[],
    $20::int[], $21::uuid[], $22::uuid[], $23::smallint[], $24::uuid[]
) AS u (
    task_uuid, template_uuid, must, state, priority, context, initiator, source_system, reason, tags,
    correlation_id, parent_correlation_id, idempotency_key, request_digest, recreated_from, start_at,
    context_bytes, wait_s, parent_task_uuid, parent_step_uuid, depth, schedule_uuid
)
JOIN tasker.staleness_thresholds st ON st.only_row
LEFT JOIN tasker.task_templates tt ON tt.template_uuid = u.template_uuid
    AND NOT (u.must > 0 AND tt.retired_at IS NOT NULL)
    AND NOT (u.must > 1 AND EXISTS (
        SELECT FROM tasker.task_templates n
        WHERE n.namespace = tt.namespace AND n.name = tt.name AND n.retired_at IS NULL
          AND (n.created_at, n.template_uuid) > (tt.created_at, tt.template_uuid)
    ))
CROSS JOIN LATERAL (
    SELECT tasker.staleness_threshold(u.state, tt, st)
        + tasker.retry_rest(u.state, tt, interval '1 second' * nullif(u.wait_s, 0)) AS threshold
) h
RETURNING task_uuid, created_at, CASE WHEN $2 THEN context END AS context;

-- name: insertSteps
-- $1 default queue timeout; then the steps. Decisions are stored as standard steps.
INSERT INTO tasker.workflow_steps (
    task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since,
    parent_uuids, child_uuids, parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms,
    max_backoff_ms, backoff_jitter, timeout_ms, queue_ttl_ms, expires_at, created_at, updated_at, inputs_bytes,
    unwritten, moves_id, join_rule, decide_at, wait_until, remind_first_s, remind_at, is_decision, attributes_at
)
SELECT
    u.task_uuid, u.step_uuid, u.name, CASE u.step_type WHEN 'decision' THEN 'standard' ELSE u.step_type END, u.namespace,
    u.handler, u.priority, u.state, now(),
    u.parents::uuid[], u.children::uuid[], u.parents_open, CASE WHEN u.state = 'enqueued' THEN 1 ELSE 0 END,
    u.max_attempts, u.retryable, u.backoff, u.base_ms, u.cap_ms, u.jitter,
    nullif(u.timeout_s, 0)::bigint * 1000, nullif(u.ttl_ms, 0),
    CASE WHEN u.state = 'enqueued' THEN now() + interval '1 millisecond' * coalesce(nullif(u.ttl_ms, 0), $1) END,
    now(), now(), u.context_bytes, CASE WHEN u.state = 'enqueued' THEN 1 ELSE 0 END,
    CASE WHEN u.state = 'enqueued' THEN nextval('tasker.step_history_transition_id_seq') END,
    nullif(u.join_rule, ''), CASE WHEN u.due THEN coalesce(u.start_at, now()) END,
    CASE WHEN u.waits AND u.timeout_s > 0 THEN coalesce(u.start_at, now()) + interval '1 second' * u.timeout_s END,
    nullif(u.remind_s, 0),
    CASE WHEN u.waits AND u.remind_s > 0 THEN coalesce(u.start_at, now()) + interval '1 second' * u.remind_s END,
    CASE u.step_type WHEN 'decision' THEN true END, CASE WHEN u.finds THEN timestamptz 'infinity' END
FROM unnest(
    $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::int[], $9::text[], $10::text[],
    $11::text[], $12::int[], $13::int[], $14::bool[], $15::text[], $16::int[], $17::int[], $18::bool[], $19::int[],
    $20::int[], $21::text[], $22::bool[], $23::bigint[], $24::int[], $25::timestamptz[], $26::bool[], $27::bool[]
) AS u (
    task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, parents, children, parents_open,
    max_attempts, retryable, backoff, base_ms, cap_ms, jitter, timeout_s, remind_s, join_rule, finds, ttl_ms,
    context_bytes, start_at, due, waits
);

-- name: insertTaskMoves
INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, reason, created_at)
SELECT u.task_uuid, u.from_state, u.to_state, nullif(u.event, ''), u.reason, now()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[]) AS u (task_uuid, from_state, to_state, event, reason);

-- name: insertReadySteps
-- $1 default queue timeout; then the steps.
INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes)
SELECT u.namespace, u.handler, u.priority, now(), u.step_uuid, u.task_uuid,
    now() + interval '1 millisecond' * coalesce(nullif(u.ttl_ms, 0), $1), nullif(u.ttl_ms, 0), u.context_bytes
FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::int[], $7::bigint[], $8::int[])
    AS u (task_uuid, step_uuid, namespace, handler, priority, ttl_ms, context_bytes);

-- name: announceNew
INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
SELECT u.task_uuid, u.step_uuid, u.namespace
FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS u (task_uuid, step_uuid, namespace);
