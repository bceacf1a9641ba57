-- What a server of the release at migration 0009 writes, with its lists of columns and
-- without what its functions compute. Sections are separated by lines of "-- section"; each is a
-- transaction. Servers of that release run while later migrations are applied, so this
-- must work before, while and after, and never changes.

-- section worker
INSERT INTO tasker.workers (worker_uuid, name, namespaces, handlers, version, max_concurrency, heartbeat_interval, lease)
VALUES (gen_random_uuid(), 'old', '{old}', '{old}', '1', 8, interval '10 seconds', interval '30 seconds');

-- section template
INSERT INTO tasker.task_templates (
    namespace, name, version, description, configuration, source, checksum,
    max_waiting_for_dependencies_minutes, max_waiting_for_retry_minutes, max_steps_in_process_minutes, max_duration_minutes
)
VALUES ('old', 'old', '1.0.0', '', '{"steps": []}', '', '', NULL, NULL, NULL, NULL)
ON CONFLICT (namespace, name, version) DO NOTHING;

-- section create
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
task AS (
    INSERT INTO tasker.tasks (
        task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, ends_at,
        priority, context, initiator, source_system, reason, tags, correlation_id, parent_correlation_id,
        idempotency_key, request_digest, recreated_from, start_at, created_at, updated_at
    )
    SELECT gen_random_uuid(), tt.template_uuid, tt.namespace, tt.name, tt.version, 'steps_in_process', c.at,
        c.at + interval '24 minutes', c.at + interval '30 minutes', NULL, 0, '{"a": 1}', '', '', '', '{}', 'old', '', NULL, NULL, NULL, NULL, c.at, c.at
    FROM tasker.task_templates tt
    JOIN tasker.staleness_thresholds st ON st.only_row
    CROSS JOIN clock c
    WHERE tt.namespace = 'old'
    RETURNING task_uuid, namespace
),
step AS (
    INSERT INTO tasker.workflow_steps (
        task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since,
        parent_uuids, child_uuids, parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms,
        max_backoff_ms, backoff_jitter, timeout_ms, queue_ttl_ms, expires_at, created_at, updated_at
    )
    SELECT t.task_uuid, gen_random_uuid(), 'one', 'standard', t.namespace, 'old', 0, 'enqueued', c.at,
        '{}', '{}', 0, 1, 3, true, 'exponential', 1000, 60000, true, NULL, NULL, c.at + interval '1 hour', c.at, c.at
    FROM task t
    CROSS JOIN clock c
    RETURNING task_uuid, step_uuid, namespace, attempts
),
task_log AS (
    INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, reason, created_at)
    SELECT task_uuid, 'pending', 'initializing', 'initialize', NULL, c.at FROM task CROSS JOIN clock c
),
step_log AS (
    INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, created_at)
    SELECT s.task_uuid, s.step_uuid, 'pending', 'enqueued', 'enqueue', s.attempts, c.at FROM step s CROSS JOIN clock c
)
INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
SELECT task_uuid, step_uuid, namespace FROM step;

-- section claim
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
picked AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid
    FROM tasker.workflow_steps s
    WHERE s.namespace = 'old' AND s.state = 'enqueued'
    ORDER BY s.priority DESC, s.state_since
    LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED
),
claimed AS (
    UPDATE tasker.workflow_steps s
    SET state = 'in_progress', state_since = c.at, updated_at = c.at, last_attempted_at = c.at,
        fence = s.fence + 1, worker_uuid = (SELECT worker_uuid FROM tasker.workers WHERE left_at IS NULL AND draining_since IS NULL LIMIT 1),
        expires_at = NULL, queue_expiries = 0, timeout_at = NULL, lease_expires_at = c.at + interval '30 seconds'
    FROM picked p
    CROSS JOIN clock c
    WHERE s.task_uuid = p.task_uuid AND s.step_uuid = p.step_uuid
    RETURNING s.step_uuid, s.task_uuid, s.attempts, s.worker_uuid, s.state_since
),
log AS (
    INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, created_at)
    SELECT task_uuid, step_uuid, 'enqueued', 'in_progress', 'claim', attempts, worker_uuid, state_since
    FROM claimed
)
SELECT s.step_uuid, t.context FROM claimed s JOIN tasker.tasks t ON t.task_uuid = s.task_uuid;

-- section report
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
moved AS (
    UPDATE tasker.workflow_steps s
    SET state = 'complete', state_since = c.at, updated_at = c.at, results = '{"success": true, "result": 1}', error = s.error, kept_report = NULL,
        last_failure_at = s.last_failure_at, completed_at = c.at, next_retry_at = NULL, lease_expires_at = NULL, timeout_at = NULL, expires_at = NULL,
        awaits_worker_since = NULL, queue_expiries = s.queue_expiries, reported_fence = s.fence, report_digest = '\x00'
    FROM clock c
    WHERE s.namespace = 'old' AND s.state = 'in_progress'
    RETURNING s.task_uuid, s.step_uuid, s.attempts, s.worker_uuid, s.state_since
)
INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, actor, reason, detail, created_at)
SELECT task_uuid, step_uuid, 'in_progress', 'complete', 'complete', attempts, worker_uuid, NULL, NULL, NULL, state_since FROM moved;
UPDATE tasker.tasks t
SET state = 'complete', state_since = clock_timestamp(), updated_at = clock_timestamp(), warn_at = NULL, stale_at = NULL, completed_at = clock_timestamp()
WHERE t.namespace = 'old' AND t.state = 'steps_in_process'
    AND t.task_uuid IN (SELECT s.task_uuid FROM tasker.workflow_steps s WHERE s.namespace = 'old' AND s.state = 'complete' ORDER BY s.state_since DESC LIMIT 3);

-- section reject
INSERT INTO tasker.rejected_reports (task_uuid, step_uuid, worker_uuid, fence, success, step_state, step_fence, message)
VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1, true, 'complete', 1, 'late');

-- section investigate
INSERT INTO tasker.tasks_dlq AS o (
    task_uuid, step_uuid, original_state, dlq_reason, detail_code, detected_by,
    dlq_timestamp, priority_at, task_snapshot, metadata, predecessor_uuid, created_at, updated_at,
    namespace, task_name, step_name, error_pattern, case_key
)
SELECT t.task_uuid, NULL, t.state, 'staleness_timeout', 'no_progress', 'sweep', now(), now(), '{"time_in_state_minutes": 31}', NULL, NULL, now(), now(),
    t.namespace, t.name, NULL, NULL, gen_random_uuid()
FROM tasker.tasks t
WHERE t.namespace = 'old' AND NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid)
LIMIT 1;

-- section emit
INSERT INTO tasker.emission_sinks (sink) VALUES ('log') ON CONFLICT DO NOTHING;

-- section audit
INSERT INTO tasker.audit_events (actor, action, subject, data) VALUES ('old', 'old', 'old', '{}');
