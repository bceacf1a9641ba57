-- name: selectCaseSamples
SELECT s.entry_uuid, d.task_uuid, s.at, s.error_type, s.error_message, s.worker_name, s.worker_version, s.task_version
FROM (
    SELECT e.*
    FROM tasker.case_fingerprints f
    JOIN tasker.cases c ON c.case_id = f.case_id
    CROSS JOIN LATERAL (
        SELECT m.dlq_entry_uuid AS entry_uuid, coalesce(m.failed_again_at, m.opened_at) AS at, coalesce(m.error_type, '') AS error_type,
            coalesce(m.error_message, '') AS error_message, coalesce(m.worker_name, '') AS worker_name,
            coalesce(m.worker_version, '') AS worker_version, m.task_version
        FROM tasker.case_members m
        WHERE m.namespace = c.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
        ORDER BY m.opened_at DESC
        LIMIT $2
    ) e
    WHERE f.case_id = $1
    ORDER BY e.at DESC
    LIMIT $2
) s
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = s.entry_uuid
ORDER BY s.at DESC, s.entry_uuid;

-- name: selectCaseHistory
SELECT changed_at AS at, event, actor, coalesce(tasker.redact_note(notes), '') AS notes, metadata
FROM tasker.case_history
WHERE case_id = $1
ORDER BY history_id DESC
LIMIT $2;

-- name: selectElsewhere
SELECT c.case_id AS id, c.namespace, c.task_name, c.step_name, n.entries
FROM tasker.cases h
JOIN tasker.cases c ON c.error_pattern = h.error_pattern AND c.error_type = h.error_type AND c.case_id <> h.case_id AND c.state <> 'resolved'
CROSS JOIN LATERAL (
    SELECT count(*) AS entries
    FROM tasker.case_fingerprints f
    JOIN tasker.case_members m ON m.namespace = c.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
    WHERE f.case_id = c.case_id
) n
WHERE h.case_id = $1 AND h.error_pattern <> '' AND ($3 OR c.namespace = ANY ($4))
ORDER BY n.entries DESC, c.case_id
LIMIT $2;

-- name: selectCaseSpread
-- Counts the values that differ between the newest open investigations of a case.
SELECT v.fact, v.value, count(*) AS entries
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
CROSS JOIN LATERAL (VALUES ('worker_version', m.worker_version), ('worker_name', m.worker_name), ('task_version', m.task_version)) AS v (fact, value)
WHERE v.value <> ''
GROUP BY v.fact, v.value
ORDER BY v.fact, count(*) DESC, v.value;

-- name: selectEndedOfCase
SELECT d.dlq_entry_uuid AS entry_uuid, d.task_uuid, d.resolution_status::text AS status, d.resolved_at AS at, d.resolved_by AS by,
    tasker.redact_note(d.resolution_notes) AS notes, (extract(epoch FROM d.resolved_at - d.dlq_timestamp) / 60)::float8 AS minutes_open
FROM (
    SELECT e.*
    FROM tasker.case_fingerprints f
    CROSS JOIN LATERAL (
        SELECT m.dlq_entry_uuid, m.ended_at
        FROM tasker.case_members m
        WHERE m.fingerprint = f.fingerprint AND m.ended_at IS NOT NULL
        ORDER BY m.ended_at DESC
        LIMIT $3
    ) e
    WHERE f.case_id = $1 AND e.dlq_entry_uuid <> $2
    ORDER BY e.ended_at DESC
    LIMIT $3
) m
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = m.dlq_entry_uuid
ORDER BY d.resolved_at DESC, d.dlq_entry_uuid;

-- name: selectRelated
SELECT f.case_id AS "case", d.case_key, (
    SELECT count(*)
    FROM (
        SELECT
        FROM tasker.case_fingerprints g
        JOIN tasker.case_members o ON o.namespace = m.namespace AND o.fingerprint = g.fingerprint AND o.ended_at IS NULL
        WHERE g.case_id = f.case_id AND o.dlq_entry_uuid <> $1
        LIMIT $2 + 1
    ) o
) AS open
FROM tasker.tasks_dlq d
LEFT JOIN tasker.case_members m ON m.dlq_entry_uuid = d.dlq_entry_uuid
LEFT JOIN tasker.case_fingerprints f ON f.fingerprint = m.fingerprint
WHERE d.dlq_entry_uuid = $1;

-- name: selectCaseFingerprints
SELECT fingerprint, home_case_id AS home, version::integer, error_type, error_pattern AS pattern, first_seen_at AS first_seen
FROM tasker.case_fingerprints
WHERE case_id = $1
ORDER BY first_seen_at, fingerprint
LIMIT $2;
