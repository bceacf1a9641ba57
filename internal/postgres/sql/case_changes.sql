-- name: selectBegan
SELECT c.case_id AS id, c.namespace, c.task_name, c.step_name, 0::bigint AS entries
FROM tasker.cases h
JOIN tasker.cases c ON c.state <> 'resolved' AND c.case_id <> h.case_id
    AND c.first_seen_at BETWEEN h.first_seen_at - interval '2 minutes' AND h.first_seen_at + interval '2 minutes'
WHERE h.case_id = $1 AND ($3 OR c.namespace = ANY ($4))
ORDER BY c.first_seen_at, c.case_id
LIMIT $2;

-- name: selectImpact
WITH members AS MATERIALIZED (
    SELECT d.task_uuid
    FROM (
    SELECT m.*
    FROM tasker.case_fingerprints f
    JOIN tasker.cases c ON c.case_id = f.case_id
    CROSS JOIN LATERAL (
        SELECT m.*
        FROM tasker.case_members m
        WHERE m.namespace = c.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
        ORDER BY m.opened_at DESC
        LIMIT $2
    ) m
    WHERE f.case_id = $1
    ORDER BY m.opened_at DESC
    LIMIT $2
) m
    JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = m.dlq_entry_uuid
),
due AS (
    SELECT t.task_uuid, t.ends_at
    FROM members l
    JOIN tasker.tasks t ON t.task_uuid = l.task_uuid
    WHERE t.ends_at IS NOT NULL AND t.state NOT IN ('complete', 'cancelled')
    ORDER BY t.ends_at
    LIMIT 1
)
SELECT (SELECT count(*) FROM members) AS tasks,
    (SELECT count(*) FROM members l JOIN tasker.workflow_steps s ON s.task_uuid = l.task_uuid WHERE s.state NOT IN ('complete', 'resolved_manually', 'skipped', 'cancelled', 'error')) AS steps,
    (SELECT ends_at FROM due) AS deadline, (SELECT task_uuid FROM due) AS due_task;

-- name: taskOfEntry
SELECT task_uuid FROM tasker.tasks_dlq WHERE dlq_entry_uuid = $1;

-- name: successesBefore
SELECT t.task_uuid, s.completed_at AS at, coalesce(w.name, '') AS worker_name, coalesce(w.version, '') AS worker_version, t.version AS task_version
FROM (
    SELECT t.*
    FROM tasker.task_templates m
    CROSS JOIN LATERAL (
        SELECT t.task_uuid, t.version
        FROM tasker.tasks t
        WHERE t.template_uuid = m.template_uuid AND t.task_uuid < $5
        ORDER BY t.task_uuid DESC
        LIMIT $4
    ) t
    WHERE m.namespace = $1 AND m.name = $2
    ORDER BY t.task_uuid DESC
    LIMIT $4
) t
LEFT JOIN LATERAL ( -- of a map step: its first complete item
    SELECT coalesce(i.completed_at, p.completed_at) AS completed_at, coalesce(i.worker_uuid, p.worker_uuid) AS worker_uuid
    FROM tasker.workflow_steps p
    LEFT JOIN LATERAL (
        SELECT i.completed_at, i.worker_uuid FROM tasker.workflow_steps i
        WHERE i.task_uuid = p.task_uuid AND i.map_step_uuid = p.step_uuid AND i.state = 'complete'
        ORDER BY i.item_ordinal
        LIMIT 1
    ) i ON true
    WHERE p.task_uuid = t.task_uuid AND p.name = $3 AND (p.state = 'complete' OR i.completed_at IS NOT NULL)
) s ON true
LEFT JOIN tasker.workers w ON w.worker_uuid = s.worker_uuid
ORDER BY s.completed_at DESC NULLS LAST, t.task_uuid DESC;

-- name: successesSince
SELECT t.task_uuid, s.completed_at AS at, coalesce(w.name, '') AS worker_name, coalesce(w.version, '') AS worker_version, t.version AS task_version
FROM (
    SELECT t.*
    FROM tasker.task_templates m
    CROSS JOIN LATERAL (
        SELECT t.task_uuid, t.version
        FROM tasker.tasks t
        WHERE t.template_uuid = m.template_uuid AND t.task_uuid >= $5
        ORDER BY t.task_uuid DESC
        LIMIT $4
    ) t
    WHERE m.namespace = $1 AND m.name = $2
    ORDER BY t.task_uuid DESC
    LIMIT $4
) t
LEFT JOIN LATERAL ( -- of a map step: its first complete item
    SELECT coalesce(i.completed_at, p.completed_at) AS completed_at, coalesce(i.worker_uuid, p.worker_uuid) AS worker_uuid
    FROM tasker.workflow_steps p
    LEFT JOIN LATERAL (
        SELECT i.completed_at, i.worker_uuid FROM tasker.workflow_steps i
        WHERE i.task_uuid = p.task_uuid AND i.map_step_uuid = p.step_uuid AND i.state = 'complete'
        ORDER BY i.item_ordinal
        LIMIT 1
    ) i ON true
    WHERE p.task_uuid = t.task_uuid AND p.name = $3 AND (p.state = 'complete' OR i.completed_at IS NOT NULL)
) s ON true
LEFT JOIN tasker.workers w ON w.worker_uuid = s.worker_uuid
ORDER BY s.completed_at DESC NULLS LAST, t.task_uuid DESC;

-- name: selectContextValues
-- Selects context values of tasks whose step failed ($1) or succeeded ($2). Excludes protected
-- values
-- and keys that have too many values.
WITH parts AS MATERIALIZED (
    SELECT p.ordinal, p.value, p.part, count(*) FILTER (WHERE u.failed) AS failures, count(*) FILTER (WHERE NOT u.failed) AS successes
    FROM (
        SELECT f.task_uuid, true AS failed FROM unnest($1::uuid[]) AS f (task_uuid)
        UNION ALL
        SELECT s.task_uuid, false FROM unnest($2::uuid[]) AS s (task_uuid)
    ) u
    JOIN tasker.tasks t ON t.task_uuid = u.task_uuid
    CROSS JOIN LATERAL tasker.context_parts(t.context, $3::text::jsonb, $4) p
    WHERE pg_column_size(t.context) <= $5
    GROUP BY p.ordinal, p.value, p.part
),
few AS MATERIALIZED (
    SELECT p.ordinal FROM parts p GROUP BY p.ordinal HAVING count(DISTINCT p.value) <= $6
)
SELECT p.ordinal, p.value, sum(p.failures)::integer AS failures, sum(p.successes)::integer AS successes
FROM parts p
JOIN few USING (ordinal)
CROSS JOIN LATERAL (SELECT jsonb_build_object('task', jsonb_build_object('context', p.part)) AS doc OFFSET 0) s
WHERE tasker.redact_snapshot(s.doc) = s.doc
GROUP BY p.ordinal, p.value
HAVING sum(p.failures) >= $7
ORDER BY p.ordinal, p.value;
