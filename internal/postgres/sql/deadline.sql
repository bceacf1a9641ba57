-- name: insertDeadlines
WITH put AS (
    INSERT INTO tasker.deadlines AS d (task_uuid, step_uuid, namespace, due_at, warn_at, look_at, warn_s, investigate, orders, source, set_at)
    SELECT t.task_uuid, u.step_uuid, t.namespace, b.due_at, w.warn_at, w.warn_at, u.warn_s, u.investigate, u.orders, u.source, clock_timestamp()
    FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::bigint[], $5::int[], $6::bool[], $7::bool[], $8::text[]) AS u (task_uuid, step_uuid, due_at, after_ms, warn_s, investigate, orders, source)
    JOIN tasker.tasks t ON t.task_uuid = u.task_uuid AND t.state NOT IN ('complete', 'cancelled')
    CROSS JOIN LATERAL (
        SELECT coalesce(u.due_at, CASE WHEN u.step_uuid = '00000000-0000-0000-0000-000000000000' THEN coalesce(t.start_at, now()) ELSE clock_timestamp() END + interval '1 millisecond' * u.after_ms) AS due_at
    ) b
    CROSS JOIN LATERAL (SELECT b.due_at - coalesce(interval '1 second' * u.warn_s, greatest(b.due_at - clock_timestamp(), interval '0') / 5) AS warn_at) w
    ORDER BY t.task_uuid, u.step_uuid
    ON CONFLICT (task_uuid, step_uuid) DO NOTHING
)
UPDATE tasker.tasks t SET options = '{}' WHERE t.task_uuid = ANY ($1::uuid[]) AND t.options IS NULL;

-- name: replaceDeadlines
WITH put AS (
    INSERT INTO tasker.deadlines AS d (task_uuid, step_uuid, namespace, due_at, warn_at, look_at, warn_s, investigate, orders, source, set_at)
    SELECT t.task_uuid, u.step_uuid, t.namespace, b.due_at, w.warn_at, w.warn_at, u.warn_s, u.investigate, u.orders, u.source, clock_timestamp()
    FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::bigint[], $5::int[], $6::bool[], $7::bool[], $8::text[]) AS u (task_uuid, step_uuid, due_at, after_ms, warn_s, investigate, orders, source)
    JOIN tasker.tasks t ON t.task_uuid = u.task_uuid AND t.state NOT IN ('complete', 'cancelled')
    CROSS JOIN LATERAL (
        SELECT coalesce(u.due_at, CASE WHEN u.step_uuid = '00000000-0000-0000-0000-000000000000' THEN coalesce(t.start_at, now()) ELSE clock_timestamp() END + interval '1 millisecond' * u.after_ms) AS due_at
    ) b
    CROSS JOIN LATERAL (SELECT b.due_at - coalesce(interval '1 second' * u.warn_s, greatest(b.due_at - clock_timestamp(), interval '0') / 5) AS warn_at) w
    ORDER BY t.task_uuid, u.step_uuid
    ON CONFLICT (task_uuid, step_uuid) DO UPDATE
    SET due_at = excluded.due_at, warn_at = excluded.warn_at, look_at = excluded.look_at, warn_s = excluded.warn_s, investigate = excluded.investigate,
        source = excluded.source, set_at = excluded.set_at, warned_at = NULL, announced_at = NULL
    WHERE d.source <> 'operator'
)
UPDATE tasker.tasks t SET options = '{}' WHERE t.task_uuid = ANY ($1::uuid[]) AND t.options IS NULL;

-- name: selectDues
SELECT t.task_uuid, (
        SELECT jsonb_build_object('due_at', q.due_at, 'warn_at', q.warn_at, 'overdue', CASE WHEN q.investigate THEN 'investigate' ELSE 'tell' END, 'source', q.source,
            'set_by', q.set_by, 'warned_at', q.warned_at, 'announced_at', q.announced_at, 'state', CASE
                WHEN CASE WHEN t.state = 'complete' THEN t.completed_at END <= q.due_at THEN 'met'
                WHEN CASE WHEN t.state = 'complete' THEN t.completed_at END > q.due_at THEN 'missed'
                WHEN q.ended_at IS NOT NULL THEN 'ended'
                WHEN q.due_at <= now() THEN 'overdue'
                WHEN q.warn_at <= now() THEN 'soon'
                ELSE 'ahead' END)
        FROM tasker.deadlines q
        WHERE q.task_uuid = t.task_uuid AND q.step_uuid = '00000000-0000-0000-0000-000000000000'
    ) AS due
FROM unnest($1::uuid[]) AS u (task_uuid)
JOIN tasker.tasks t ON t.task_uuid = u.task_uuid
WHERE t.options IS NOT NULL;

-- name: deadlinesToNotify
SELECT d.task_uuid, d.step_uuid
FROM tasker.deadlines d
WHERE d.look_at < 'infinity' AND d.look_at <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = 'deadline' AND w.task_uuid = d.task_uuid AND w.step_uuid = d.step_uuid)
ORDER BY d.look_at, d.task_uuid, d.step_uuid
LIMIT $1;

-- name: watchedDeadlines
SELECT d.task_uuid, d.step_uuid, d.namespace, t.name AS task_name, coalesce(s.name, '') AS step_name, coalesce(s.state, t.state) AS state, d.due_at, t.created_at,
    d.ended_at IS NOT NULL OR coalesce(s.state IN ('complete', 'resolved_manually', 'skipped', 'cancelled'), d.step_uuid <> '00000000-0000-0000-0000-000000000000') AS ended, now() AS as_of
FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)
JOIN tasker.deadlines d ON d.task_uuid = u.task_uuid AND d.step_uuid = u.step_uuid
JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
LEFT JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
WHERE d.look_at <= now()
ORDER BY d.task_uuid, d.step_uuid
FOR NO KEY UPDATE OF d;

-- name: markDeadlines
UPDATE tasker.deadlines d
SET look_at = CASE WHEN u.ended OR u.overdue THEN 'infinity' ELSE d.due_at END,
    warned_at = CASE WHEN u.ended OR u.overdue THEN d.warned_at ELSE clock_timestamp() END,
    announced_at = CASE WHEN u.overdue AND NOT u.ended THEN clock_timestamp() END
FROM unnest($1::uuid[], $2::uuid[], $3::bool[], $4::bool[]) AS u (task_uuid, step_uuid, ended, overdue)
WHERE d.task_uuid = u.task_uuid AND d.step_uuid = u.step_uuid;

-- name: dueTask
SELECT t.state, t.template_uuid, (
        SELECT jsonb_build_object('due_at', q.due_at, 'warn_at', q.warn_at, 'overdue', CASE WHEN q.investigate THEN 'investigate' ELSE 'tell' END, 'source', q.source,
            'set_by', q.set_by, 'warned_at', q.warned_at, 'announced_at', q.announced_at, 'state', CASE
                WHEN CASE WHEN t.state = 'complete' THEN t.completed_at END <= q.due_at THEN 'met'
                WHEN CASE WHEN t.state = 'complete' THEN t.completed_at END > q.due_at THEN 'missed'
                WHEN q.ended_at IS NOT NULL THEN 'ended'
                WHEN q.due_at <= now() THEN 'overdue'
                WHEN q.warn_at <= now() THEN 'soon'
                ELSE 'ahead' END)
        FROM tasker.deadlines q
        WHERE q.task_uuid = t.task_uuid AND q.step_uuid = '00000000-0000-0000-0000-000000000000'
    ) AS due, t.phase IS NULL AND EXISTS (
    SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid AND d.resolution_status = 'permanently_failed'
) AS written_off
FROM tasker.tasks t WHERE t.task_uuid = $1;

-- name: removeDeadline
DELETE FROM tasker.deadlines d WHERE d.task_uuid = $1 AND d.step_uuid = $2;

-- name: changeDeadline
WITH changed AS (
    INSERT INTO tasker.deadlines AS d (task_uuid, step_uuid, namespace, due_at, warn_at, look_at, warn_s, investigate, orders, source, set_by, set_at)
    SELECT t.task_uuid, $2, t.namespace, $3, w.warn_at, w.warn_at, $4::int, $5, $6, 'operator', $7, clock_timestamp()
    FROM tasker.tasks t
    CROSS JOIN LATERAL (SELECT $3::timestamptz - coalesce(interval '1 second' * $4::int, greatest($3::timestamptz - clock_timestamp(), interval '0') / 5) AS warn_at) w
    WHERE t.task_uuid = $1
    ON CONFLICT (task_uuid, step_uuid) DO UPDATE
    SET due_at = excluded.due_at, warn_at = excluded.due_at - coalesce(interval '1 second' * d.warn_s, excluded.due_at - excluded.warn_at),
        look_at = excluded.due_at - coalesce(interval '1 second' * d.warn_s, excluded.due_at - excluded.warn_at),
        source = 'operator', set_by = excluded.set_by, set_at = clock_timestamp(), warned_at = NULL, announced_at = NULL,
        ended_at = NULL -- set if the task was marked as permanently failed before it compensates
)
UPDATE tasker.tasks t SET options = '{}' WHERE t.task_uuid = $1 AND t.options IS NULL;

-- name: reorderReady
-- Reorders enqueued steps by the new due time.
UPDATE tasker.ready_steps r
SET due_at = (
        SELECT min(o.due_at) FROM tasker.deadlines o
        WHERE o.task_uuid = s.task_uuid AND o.step_uuid IN ('00000000-0000-0000-0000-000000000000', s.step_uuid) AND o.orders
    )
FROM tasker.workflow_steps s
WHERE s.task_uuid = $1 AND s.state || '' = 'enqueued' AND r.namespace = s.namespace AND r.handler = s.handler AND r.priority = s.priority AND r.state_since = s.state_since AND r.step_uuid = s.step_uuid AND r.task_uuid = s.task_uuid;

-- name: noteDueChange
INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, actor, reason, detail, created_at)
VALUES ($1, $2, $2, $3, nullif($4, ''), nullif($5, ''), $6::text::jsonb, clock_timestamp());

-- name: countOverdue
-- Reads one index range per namespace, up to the limit.
SELECT coalesce(sum(x.tasks), 0)::bigint
FROM (SELECT DISTINCT m.namespace FROM tasker.task_templates m) n
CROSS JOIN LATERAL (
    SELECT count(*) AS tasks FROM (
        SELECT FROM tasker.deadlines d
        WHERE d.namespace = n.namespace AND d.due_at <= now() AND d.ended_at IS NULL AND d.step_uuid = '00000000-0000-0000-0000-000000000000'
        LIMIT $1
    ) l
) x;
