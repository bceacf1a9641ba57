-- name: bindTask
-- Stores options after the task was inserted, so that tasks without options cost nothing.
WITH bound AS (
    UPDATE tasker.tasks t
    SET start_at = b.start_at, ends_at = t.ends_at + b.after, options = jsonb_strip_nulls(jsonb_build_object('start_by', b.start_by, 'unique_key', nullif(u.unique_key, ''), 'debounce_key', nullif(u.debounce_key, '')))
    FROM unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::text[], $5::text[], $6::bigint[], $7::bigint[]) AS u (task_uuid, after_ms, start_by, unique_key, debounce_key, max_wait_ms, within_ms)
    CROSS JOIN LATERAL (SELECT interval '1 millisecond' * u.after_ms AS after) a
    JOIN tasker.tasks n ON n.task_uuid = u.task_uuid
    CROSS JOIN LATERAL (SELECT coalesce(n.start_at, CASE WHEN u.after_ms > 0 THEN now() + a.after END) AS start_at) s
    CROSS JOIN LATERAL (
        SELECT s.start_at, a.after, coalesce(u.start_by, CASE WHEN u.within_ms > 0 THEN coalesce(s.start_at, now()) + interval '1 millisecond' * u.within_ms END) AS start_by
    ) b
    WHERE t.task_uuid = u.task_uuid AND t.state NOT IN ('complete', 'cancelled')
    RETURNING t.task_uuid, t.namespace, t.name, t.state, u.unique_key, b.start_by, u.debounce_key, u.max_wait_ms
),
debounced AS (
    INSERT INTO tasker.debounced_tasks (namespace, name, debounce_key, task_uuid, latest_start)
    SELECT namespace, name, debounce_key, task_uuid, now() + interval '1 millisecond' * max_wait_ms
    FROM bound WHERE debounce_key <> '' AND state = 'pending' ORDER BY namespace, name, debounce_key
),
unique_keys AS (
    INSERT INTO tasker.unique_tasks (namespace, name, unique_key, task_uuid)
    SELECT namespace, name, unique_key, task_uuid FROM bound WHERE unique_key <> '' ORDER BY namespace, name, unique_key
)
INSERT INTO tasker.task_starts (task_uuid, start_by)
SELECT task_uuid, start_by FROM bound WHERE start_by IS NOT NULL;

-- name: delaySteps
-- Postpones the waits of steps to the start of their tasks.
UPDATE tasker.workflow_steps s
SET decide_at = s.decide_at + u.after, wait_until = s.wait_until + u.after, remind_at = s.remind_at + u.after
FROM unnest($1::uuid[], $2::interval[]) AS u (task_uuid, after)
WHERE s.task_uuid = u.task_uuid AND num_nonnulls(s.decide_at, s.wait_until, s.remind_at) > 0;

-- name: tasksToExpire
SELECT x.task_uuid
FROM tasker.task_starts x
WHERE x.start_by <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = 'start_by' AND w.task_uuid = x.task_uuid)
ORDER BY x.start_by
LIMIT $1;

-- name: lockUnstarted
-- Locks enqueued steps against claims. A step has started if a claim has raised its fence, if it
-- has
-- ended or if it has a child task.
WITH steps AS MATERIALIZED (
    SELECT s.task_uuid, s.fence > 0 OR s.child_task_uuid IS NOT NULL OR s.state IN ('complete', 'resolved_manually', 'in_progress') AS started
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = ANY ($1)
    ORDER BY s.task_uuid, s.step_uuid
    FOR NO KEY UPDATE
)
SELECT t.task_uuid AS uuid, t.namespace, t.name, t.state, x.start_by
FROM tasker.task_starts x
JOIN tasker.tasks t ON t.task_uuid = x.task_uuid
WHERE x.task_uuid = ANY ($1) AND x.start_by <= clock_timestamp() AND t.phase IS NULL AND t.state NOT IN ('complete', 'cancelled')
  AND NOT EXISTS (SELECT FROM steps s WHERE s.task_uuid = x.task_uuid AND s.started);

-- name: deleteExpiredStarts
DELETE FROM tasker.task_starts WHERE task_uuid = ANY ($1) AND start_by <= clock_timestamp();

-- name: notifyTasks
INSERT INTO tasker.messages (topic, subject_kind, subject_id, namespaces, data)
SELECT $1, 'task', t.task_uuid, ARRAY[t.namespace], jsonb_build_object(
    'summary', format('%s: a task of %s %s', t.namespace, t.name, $3::text), 'severity', $2::text,
    'namespace', t.namespace, 'template', t.name, 'task', t.task_uuid, 'state', t.state, 'began_at', t.created_at, 'path', '/ui/tasks/' || t.task_uuid,
    'entries', 0, 'waiting', 0, 'proving', 0, 'failed_again', 0, 'recovered', 0, 'cases', 0, 'cases_open', 0)
FROM tasker.tasks t
WHERE t.task_uuid = ANY ($4)
ORDER BY t.task_uuid;
