-- name: lockDebounceKeys
-- Acquires the locks in the order of the keys.
SELECT pg_advisory_xact_lock(k.lock)
FROM (
    SELECT DISTINCT hashtextextended(u.namespace || chr(31) || u.name || chr(31) || u.debounce_key, 11) AS lock
    FROM unnest($1::text[], $2::text[], $3::text[]) AS u (namespace, name, debounce_key)
    ORDER BY 1
) k;

-- name: waitingTask
-- The expression on state keeps the planner from reading all pending tasks.
SELECT t.task_uuid AS uuid, t.version
FROM tasker.debounced_tasks x
JOIN tasker.tasks t ON t.task_uuid = x.task_uuid AND t.state || '' = 'pending'
WHERE x.namespace = $1 AND x.name = $2 AND x.debounce_key = $3
FOR NO KEY UPDATE OF t;

-- name: mergeRequest
-- The last request that sets start_by determines it. If none does, start_by moves with the start,
-- so
-- that a task cannot expire before it could start.
--
-- $1 task, $2 context, $3 its size, $4 wait (ms), $5 start_within (ms), $6 actor, $7 reason, $8
-- start_by.
WITH was AS MATERIALIZED (
    SELECT t.task_uuid, t.start_at, t.context_bytes, clock_timestamp() AS at,
        least(clock_timestamp() + interval '1 millisecond' * $4::bigint, x.latest_start) AS starts
    FROM tasker.tasks t
    JOIN tasker.debounced_tasks x ON x.task_uuid = t.task_uuid
    WHERE t.task_uuid = $1 AND t.state = 'pending'
),
moved AS (
    UPDATE tasker.tasks t
    SET context = $2::text::jsonb, context_bytes = $3, start_at = w.starts, ends_at = t.ends_at + (w.starts - w.start_at), updated_at = w.at,
        options = jsonb_strip_nulls(t.options || jsonb_build_object(
            'merged_requests', coalesce((t.options ->> 'merged_requests')::int, 0) + 1,
            'start_by', coalesce($8::timestamptz, CASE
                WHEN $5::bigint > 0 THEN w.starts + interval '1 millisecond' * $5::bigint
                ELSE (t.options ->> 'start_by')::timestamptz + (w.starts - w.start_at)
            END)))
    FROM was w
    WHERE t.task_uuid = w.task_uuid
    RETURNING t.task_uuid, (t.options ->> 'start_by')::timestamptz AS start_by
),
deadlines AS (
    INSERT INTO tasker.task_starts (task_uuid, start_by)
    SELECT m.task_uuid, m.start_by FROM moved m WHERE m.start_by IS NOT NULL
    ON CONFLICT (task_uuid) DO UPDATE SET start_by = excluded.start_by
),
steps AS (
    UPDATE tasker.workflow_steps s
    SET inputs_bytes = s.inputs_bytes + ($3 - w.context_bytes), decide_at = s.decide_at + (w.starts - w.start_at),
        wait_until = s.wait_until + (w.starts - w.start_at), remind_at = s.remind_at + (w.starts - w.start_at)
    FROM was w
    WHERE s.task_uuid = w.task_uuid
)
INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, actor, reason, created_at)
SELECT w.task_uuid, 'pending', 'pending', 'merge', nullif($6, ''), nullif($7, ''), w.at
FROM was w;
