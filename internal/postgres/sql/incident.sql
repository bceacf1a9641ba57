-- name: selectIncident
-- Investigations are counted only for an open incident.
SELECT i.incident_id AS id, i.namespace, i.lead_case_id AS lead, i.dedup_key, i.severity, i.began_at, i.ended_at, i.unowned_since,
    i.escalation, i.told_at, c.task_name, c.step_name, c.dlq_reason::text AS reason, c.detail_code, c.error_type,
    c.error_pattern, n.cases, n.cases_open, n.owned_by, n.cases_not_owned, coalesce(e.entries, 0) AS entries,
    (SELECT count(*) FROM tasker.messages m WHERE m.incident_id = i.incident_id) AS messages
FROM tasker.incidents i
JOIN tasker.cases c ON c.case_id = i.lead_case_id
CROSS JOIN LATERAL (
    SELECT count(*) AS cases, count(*) FILTER (WHERE k.state <> 'resolved') AS cases_open,
        coalesce(array_agg(DISTINCT k.owner) FILTER (WHERE k.state <> 'resolved' AND k.owned_until > now()), '{}') AS owned_by,
        count(*) FILTER (WHERE k.state <> 'resolved' AND coalesce(k.owned_until <= now(), true)) AS cases_not_owned
    FROM tasker.incident_cases ic
    JOIN tasker.cases k ON k.case_id = ic.case_id
    WHERE ic.incident_id = i.incident_id
) n
LEFT JOIN LATERAL (
    SELECT count(*) AS entries
    FROM tasker.incident_cases ic
    JOIN tasker.case_fingerprints f ON f.case_id = ic.case_id
    JOIN tasker.case_members m ON m.namespace = i.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
    WHERE ic.incident_id = i.incident_id
) e ON i.ended_at IS NULL
WHERE i.incident_id = $1;

-- name: selectIncidents
-- $1 limit, $2 offset, $3 state or '', $4 namespaces or NULL for all. Open incidents are few. Others are
-- read in order, or as one index range per namespace.
SELECT i.incident_id AS id, i.namespace, i.lead_case_id AS lead, i.dedup_key, i.severity, i.began_at, i.ended_at, i.unowned_since,
    i.escalation, i.told_at, c.task_name, c.step_name, c.dlq_reason::text AS reason, c.detail_code, c.error_type,
    c.error_pattern, n.cases, n.cases_open, n.owned_by, n.cases_not_owned, coalesce(e.entries, 0) AS entries,
    (SELECT count(*) FROM tasker.messages m WHERE m.incident_id = i.incident_id) AS messages
FROM (
    SELECT x.*
    FROM (
        SELECT i.* FROM tasker.incidents i
        WHERE $3 = 'open' AND i.ended_at IS NULL AND ($4::text[] IS NULL OR i.namespace = ANY ($4))
        UNION ALL (
            SELECT i.* FROM tasker.incidents i
            WHERE $3 <> 'open' AND $4 IS NULL AND ($3 = '' OR i.ended_at IS NOT NULL)
            ORDER BY i.began_at DESC, i.incident_id DESC
            LIMIT $1::bigint + $2::bigint
        )
        UNION ALL
        SELECT i.*
        FROM unnest($4) AS n (namespace)
        CROSS JOIN LATERAL (
            SELECT i.* FROM tasker.incidents i
            WHERE $3 <> 'open' AND i.namespace = n.namespace AND ($3 = '' OR i.ended_at IS NOT NULL)
            ORDER BY i.began_at DESC, i.incident_id DESC
            LIMIT $1::bigint + $2::bigint
        ) i
    ) x
    ORDER BY x.began_at DESC, x.incident_id DESC
    LIMIT $1 OFFSET $2
) i
JOIN tasker.cases c ON c.case_id = i.lead_case_id
CROSS JOIN LATERAL (
    SELECT count(*) AS cases, count(*) FILTER (WHERE k.state <> 'resolved') AS cases_open,
        coalesce(array_agg(DISTINCT k.owner) FILTER (WHERE k.state <> 'resolved' AND k.owned_until > now()), '{}') AS owned_by,
        count(*) FILTER (WHERE k.state <> 'resolved' AND coalesce(k.owned_until <= now(), true)) AS cases_not_owned
    FROM tasker.incident_cases ic
    JOIN tasker.cases k ON k.case_id = ic.case_id
    WHERE ic.incident_id = i.incident_id
) n
LEFT JOIN LATERAL (
    SELECT count(*) AS entries
    FROM tasker.incident_cases ic
    JOIN tasker.case_fingerprints f ON f.case_id = ic.case_id
    JOIN tasker.case_members m ON m.namespace = i.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
    WHERE ic.incident_id = i.incident_id
) e ON i.ended_at IS NULL
ORDER BY i.began_at DESC, i.incident_id DESC;

-- name: selectIncidentCases
SELECT c.case_id AS id, ic.joined_at, c.state, c.task_name, c.step_name, c.dlq_reason::text AS reason, c.detail_code, c.error_type, c.error_pattern,
    CASE WHEN c.owned_until > now() THEN c.owner ELSE '' END AS owner, c.resolved_at, (
        SELECT count(*)
        FROM tasker.case_fingerprints f
        JOIN tasker.case_members m ON m.namespace = c.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
        WHERE f.case_id = c.case_id
    ) AS entries
FROM (SELECT * FROM tasker.incident_cases ic WHERE ic.incident_id = $1 ORDER BY ic.joined_at, ic.case_id LIMIT $2) ic
JOIN tasker.cases c ON c.case_id = ic.case_id
ORDER BY ic.joined_at, ic.case_id;

-- name: messages
SELECT m.position, m.message_uuid AS uuid, m.topic, m.subject_kind, m.subject_id, m.incident_id, m.namespaces,
    coalesce(m.dedup_key, '') AS dedup_key, m.escalation, m.data, m.created_at AS at, m.routed_at
FROM tasker.messages m
WHERE m.incident_id = $1
ORDER BY m.position
LIMIT $2;

-- name: selectMessageEmissions
SELECT e.position, e.sink, e.state, e.attempts, e.refusals, CASE WHEN e.state = 'pending' THEN e.next_attempt_at END AS next_attempt_at, e.last_error, e.published_at
FROM tasker.message_emissions e
WHERE e.position = ANY ($1)
ORDER BY e.position, e.sink;
