-- name: insertMessage
INSERT INTO tasker.messages (topic, subject_kind, subject_id, incident_id, namespaces, dedup_key, escalation, data)
VALUES ($1, $2, $3, $4, $5, nullif($6, ''), $7, $8::text::jsonb)
RETURNING position;

-- name: transactionTime
SELECT now();

-- name: selectNotificationState
-- Selects important cases, cases of open incidents, and cases for which a digest is due.
WITH
open AS MATERIALIZED (
    SELECT f.case_id, sum(m.entries)::bigint AS entries, sum(m.recovered)::bigint AS recovered, sum(m.proving)::bigint AS proving,
        sum(m.failed_again)::bigint AS failed_again, min(m.oldest) AS oldest, max(m.newest) AS newest,
        sum(m.recent)::bigint AS recent, sum(m.earlier)::bigint AS earlier, max(m.acted) AS acted
    FROM (
        SELECT m.fingerprint, count(*) AS entries, count(m.recovered_at) AS recovered,
            count(*) FILTER (WHERE m.recovered_at IS NULL AND m.acted_at > coalesce(m.failed_again_at, '-infinity')) AS proving,
            count(*) FILTER (WHERE m.recovered_at IS NULL AND m.failed_again_at >= m.acted_at) AS failed_again,
            min(m.opened_at) AS oldest, max(m.opened_at) AS newest,
            count(*) FILTER (WHERE m.opened_at > now() - interval '5 minutes') AS recent,
            count(*) FILTER (WHERE m.opened_at <= now() - interval '5 minutes' AND m.opened_at > now() - interval '35 minutes') AS earlier,
            max(m.acted_at) AS acted
        FROM tasker.case_members m
        WHERE m.ended_at IS NULL AND m.fingerprint IS NOT NULL AND true
        GROUP BY m.fingerprint
    ) m
    JOIN tasker.case_fingerprints f ON f.fingerprint = m.fingerprint
    GROUP BY f.case_id
),
current AS MATERIALIZED (
    SELECT ic.case_id, i.incident_id, ic.told_state, ic.told_entries, i.told_at
    FROM tasker.incidents i
    JOIN tasker.incident_cases ic ON ic.incident_id = i.incident_id
    WHERE i.ended_at IS NULL
),
known AS MATERIALIZED (
    SELECT c.*, u.incident_id, u.told_state, u.told_entries, u.told_at
    FROM current u JOIN tasker.cases c ON c.case_id = u.case_id
    UNION ALL
    SELECT c.*, NULL, NULL, NULL, (SELECT max(i.told_at) FROM tasker.incident_cases ic JOIN tasker.incidents i ON i.incident_id = ic.incident_id WHERE ic.case_id = c.case_id)
    FROM tasker.cases c
    WHERE c.state <> 'resolved' AND c.merged_into IS NULL AND NOT EXISTS (SELECT FROM current u WHERE u.case_id = c.case_id)
),
judged AS MATERIALIZED (
    SELECT c.*, coalesce(o.entries, 0) AS entries, coalesce(o.entries - o.recovered - o.proving - o.failed_again, 0) AS waiting, coalesce(o.proving, 0) AS proving,
    coalesce(o.failed_again, 0) AS failed_again, coalesce(o.recovered, 0) AS recovered, coalesce(o.recent, 0) AS recent, o.oldest, o.newest, coalesce(tasker.case_harm(tasker.dlq_severity(c.dlq_reason, c.detail_code), o.entries - o.recovered, o.recent, o.earlier,
    coalesce(c.owned_until > now(), false), c.state = 'resting') * CASE WHEN o.recovered = o.entries THEN 0.1 ELSE 1 END, 0) AS harm, tasker.dlq_severity(c.dlq_reason, c.detail_code) AS severity,
        c.told_at IS NOT NULL AND EXISTS (
            SELECT FROM tasker.case_history h
            WHERE h.case_id = c.case_id AND h.event = 'state_changed' AND h.metadata ->> 'to' = 'regressed' AND h.changed_at > c.told_at
        ) AS again,
        CASE WHEN c.dlq_reason = 'manual_dlq' THEN 0 ELSE coalesce(o.entries - o.recovered, 0) END AS stuck
    FROM known c
    LEFT JOIN open o ON o.case_id = c.case_id
),
sized AS (
    SELECT c.*, l.large, s.small, s.small AND c.oldest <= now() - $2::interval AND coalesce(c.digested_at < c.oldest, true) AS digest,
        coalesce(sum(c.stuck) FILTER (WHERE s.small AND c.oldest > now() - $5::interval) OVER (PARTITION BY c.namespace), 0) >= $6 AS many
    FROM judged c
    CROSS JOIN LATERAL (SELECT c.state <> 'resting' AND (c.stuck >= $1 OR c.stuck > 0 AND (c.severity = 'critical' OR c.again)) AS large) l
    CROSS JOIN LATERAL (
        SELECT c.incident_id IS NULL AND NOT l.large AND c.entries > c.recovered AND c.state <> 'resting' AND coalesce(c.owned_until <= now(), true) AS small
    ) s
),
ranked AS (
    SELECT c.*, row_number() OVER (PARTITION BY c.namespace ORDER BY c.large DESC, c.incident_id IS NULL, c.harm DESC, c.case_id) AS place
    FROM sized c
    WHERE c.incident_id IS NOT NULL OR c.large
       OR c.small AND c.many AND c.stuck > 0 AND c.oldest > now() - $5::interval
       OR c.digest AND NOT EXISTS (
           SELECT FROM tasker.messages m WHERE m.subject_id = md5('digest ' || c.namespace)::uuid AND m.created_at > now() - $3::interval
       )
)
SELECT c.case_id AS id, c.state, c.state_since, c.dlq_reason::text AS reason, c.detail_code, c.namespace, c.task_name, c.step_name,
    c.error_type, c.error_pattern, c.first_seen_at AS first_seen,
    CASE WHEN c.owned_until > now() THEN c.owner ELSE '' END AS owner, CASE WHEN c.owned_until > now() THEN c.owned_until END AS owned_until,
    CASE WHEN c.snoozed_until > now() THEN c.snoozed_until END AS snoozed_until, CASE WHEN c.snoozed_until > now() THEN c.snooze_above END AS snooze_above,
    coalesce(c.fixed_in, '') AS fixed_in, c.resolved_at, c.merged_into, c.updated_at, c.entries, c.waiting, c.proving, c.failed_again, c.recovered, c.recent, c.oldest, c.newest, NULL::uuid AS entry_uuid, NULL::uuid AS case_key,
    c.harm, c.severity, c.incident_id, c.again, coalesce(c.told_state, '') AS told_state, coalesce(c.told_entries, 0) AS told_stuck,
    c.digest AND NOT (c.many AND c.stuck > 0 AND c.oldest > now() - $5::interval) AS digest
FROM ranked c
WHERE c.place <= $4
ORDER BY c.namespace, c.place;

-- name: selectOpenIncidents
SELECT incident_id AS id, namespace, lead_case_id AS lead, dedup_key, severity, began_at, told_at, unowned_since, escalation, told_owned, revision
FROM tasker.incidents
WHERE ended_at IS NULL
ORDER BY namespace, began_at DESC
LIMIT $1;

-- name: insertIncident
INSERT INTO tasker.incidents (incident_id, namespace, lead_case_id, dedup_key, severity, began_at, unowned_since, escalation, told_at, told_owned)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: updateIncident
-- Compares the revision, so that only one of several servers updates the incident.
UPDATE tasker.incidents
SET severity = $3, unowned_since = $4, escalation = $5, told_at = $6, told_owned = $7, ended_at = CASE WHEN $8 THEN clock_timestamp() END, lead_case_id = $9,
    revision = revision + 1
WHERE incident_id = $1 AND revision = $2 AND ended_at IS NULL;

-- name: recordNotifiedCases
-- Stores the state of cases that was reported. The next message reports cases that joined later.
INSERT INTO tasker.incident_cases AS ic (incident_id, case_id, told_state, told_entries)
SELECT $1, u.case_id, u.state, u.entries
FROM unnest($2::uuid[], $3::text[], $4::bigint[]) AS u (case_id, state, entries)
ON CONFLICT (incident_id, case_id) DO UPDATE SET told_state = excluded.told_state, told_entries = excluded.told_entries;

-- name: noteDigest
UPDATE tasker.cases SET digested_at = now() WHERE case_id = ANY ($1) AND coalesce(digested_at < now() - $2::interval, true);
