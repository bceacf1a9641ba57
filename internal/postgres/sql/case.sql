-- name: selectCase
WITH open AS MATERIALIZED (
    SELECT f.case_id, sum(m.entries)::bigint AS entries, sum(m.recovered)::bigint AS recovered,
        sum(m.proving)::bigint AS proving, sum(m.failed_again)::bigint AS failed_again, min(m.oldest) AS oldest,
        max(m.newest) AS newest, sum(m.recent)::bigint AS recent, sum(m.earlier)::bigint AS earlier, max(m.acted) AS acted
    FROM (
        SELECT m.fingerprint, count(*) AS entries, count(m.recovered_at) AS recovered,
            count(*) FILTER (
                WHERE m.recovered_at IS NULL AND m.acted_at > coalesce(m.failed_again_at, '-infinity')
            ) AS proving,
            count(*) FILTER (WHERE m.recovered_at IS NULL AND m.failed_again_at >= m.acted_at) AS failed_again,
            min(m.opened_at) AS oldest, max(m.opened_at) AS newest,
            count(*) FILTER (WHERE m.opened_at > now() - interval '5 minutes') AS recent,
            count(*) FILTER (
                WHERE m.opened_at <= now() - interval '5 minutes' AND m.opened_at > now() - interval '35 minutes'
            ) AS earlier,
            max(m.acted_at) AS acted
        FROM tasker.case_members m
        WHERE m.ended_at IS NULL AND m.fingerprint IS NOT NULL
          AND m.namespace = (SELECT c.namespace FROM tasker.cases c WHERE c.case_id = $1)
          AND m.fingerprint IN (SELECT f.fingerprint FROM tasker.case_fingerprints f WHERE f.case_id = $1)
        GROUP BY m.fingerprint
    ) m
    JOIN tasker.case_fingerprints f ON f.fingerprint = m.fingerprint
    GROUP BY f.case_id
),
page AS (
    SELECT c.case_id AS id, c.state, c.state_since, c.dlq_reason::text AS reason, c.detail_code, c.namespace, c.task_name, c.step_name,
        c.error_type, c.error_pattern, c.first_seen_at AS first_seen,
        CASE WHEN c.owned_until > now() THEN c.owner ELSE '' END AS owner,
        CASE WHEN c.owned_until > now() THEN c.owned_until END AS owned_until,
        CASE WHEN c.snoozed_until > now() THEN c.snoozed_until END AS snoozed_until,
        CASE WHEN c.snoozed_until > now() THEN c.snooze_above END AS snooze_above,
        coalesce(c.fixed_in, '') AS fixed_in, c.resolved_at, c.merged_into, c.updated_at,
        coalesce(o.entries, 0) AS entries, coalesce(o.entries - o.recovered - o.proving - o.failed_again, 0) AS waiting,
        coalesce(o.proving, 0) AS proving, coalesce(o.failed_again, 0) AS failed_again, coalesce(o.recovered, 0) AS recovered,
        coalesce(o.recent, 0) AS recent, o.oldest, o.newest,
        coalesce(tasker.case_harm(
            tasker.dlq_severity(c.dlq_reason, c.detail_code), o.entries - o.recovered, o.recent, o.earlier,
            coalesce(c.owned_until > now(), false), c.state = 'resting'
        ) * CASE WHEN o.recovered = o.entries THEN 0.1 ELSE 1 END, 0) AS harm
    FROM tasker.cases c
    LEFT JOIN open o ON o.case_id = c.case_id
    WHERE c.case_id = $1
)
SELECT p.*, e.dlq_entry_uuid AS entry_uuid, e.case_key
FROM page p
LEFT JOIN LATERAL (
    SELECT e.dlq_entry_uuid, d.case_key
    FROM tasker.case_fingerprints f
    CROSS JOIN LATERAL (
        SELECT m.dlq_entry_uuid, m.opened_at
        FROM tasker.case_members m
        WHERE m.namespace = p.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
        ORDER BY m.opened_at
        LIMIT 1
    ) e
    JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = e.dlq_entry_uuid
    WHERE f.case_id = p.id
    ORDER BY e.opened_at, e.dlq_entry_uuid
    LIMIT 1
) e ON true;

-- name: selectCases
-- Open investigations are grouped by fingerprint first, so that an index-only scan suffices. The most
-- harmful cases come first; those whose tasks have all continued come last. Each case has its oldest
-- open investigation, and the totals over all pages.
WITH open AS MATERIALIZED (
    SELECT f.case_id, sum(m.entries)::bigint AS entries, sum(m.recovered)::bigint AS recovered,
        sum(m.proving)::bigint AS proving, sum(m.failed_again)::bigint AS failed_again, min(m.oldest) AS oldest,
        max(m.newest) AS newest, sum(m.recent)::bigint AS recent, sum(m.earlier)::bigint AS earlier, max(m.acted) AS acted
    FROM (
        SELECT m.fingerprint, count(*) AS entries, count(m.recovered_at) AS recovered,
            count(*) FILTER (
                WHERE m.recovered_at IS NULL AND m.acted_at > coalesce(m.failed_again_at, '-infinity')
            ) AS proving,
            count(*) FILTER (WHERE m.recovered_at IS NULL AND m.failed_again_at >= m.acted_at) AS failed_again,
            min(m.opened_at) AS oldest, max(m.opened_at) AS newest,
            count(*) FILTER (WHERE m.opened_at > now() - interval '5 minutes') AS recent,
            count(*) FILTER (
                WHERE m.opened_at <= now() - interval '5 minutes' AND m.opened_at > now() - interval '35 minutes'
            ) AS earlier,
            max(m.acted_at) AS acted
        FROM tasker.case_members m
        WHERE m.ended_at IS NULL AND m.fingerprint IS NOT NULL /* members */
        GROUP BY m.fingerprint
    ) m
    JOIN tasker.case_fingerprints f ON f.fingerprint = m.fingerprint
    GROUP BY f.case_id
),
page AS (
    SELECT c.case_id AS id, c.state, c.state_since, c.dlq_reason::text AS reason, c.detail_code, c.namespace, c.task_name, c.step_name,
        c.error_type, c.error_pattern, c.first_seen_at AS first_seen,
        CASE WHEN c.owned_until > now() THEN c.owner ELSE '' END AS owner,
        CASE WHEN c.owned_until > now() THEN c.owned_until END AS owned_until,
        CASE WHEN c.snoozed_until > now() THEN c.snoozed_until END AS snoozed_until,
        CASE WHEN c.snoozed_until > now() THEN c.snooze_above END AS snooze_above,
        coalesce(c.fixed_in, '') AS fixed_in, c.resolved_at, c.merged_into, c.updated_at,
        coalesce(o.entries, 0) AS entries, coalesce(o.entries - o.recovered - o.proving - o.failed_again, 0) AS waiting,
        coalesce(o.proving, 0) AS proving, coalesce(o.failed_again, 0) AS failed_again, coalesce(o.recovered, 0) AS recovered,
        coalesce(o.recent, 0) AS recent, o.oldest, o.newest,
        coalesce(tasker.case_harm(
            tasker.dlq_severity(c.dlq_reason, c.detail_code), o.entries - o.recovered, o.recent, o.earlier,
            coalesce(c.owned_until > now(), false), c.state = 'resting'
        ) * CASE WHEN o.recovered = o.entries THEN 0.1 ELSE 1 END, 0) AS harm,
        count(*) OVER () AS total_cases, sum(o.entries) OVER ()::bigint AS total_entries,
        sum(o.recent) OVER ()::bigint AS total_recent, min(o.oldest) OVER () AS total_oldest
    FROM open o
    JOIN tasker.cases c ON c.case_id = o.case_id
    WHERE true /* cases */
    ORDER BY harm DESC, c.case_id
    LIMIT $1 OFFSET $2
)
SELECT p.*, e.dlq_entry_uuid AS entry_uuid, e.case_key
FROM page p
LEFT JOIN LATERAL (
    SELECT e.dlq_entry_uuid, d.case_key
    FROM tasker.case_fingerprints f
    CROSS JOIN LATERAL (
        SELECT m.dlq_entry_uuid, m.opened_at
        FROM tasker.case_members m
        WHERE m.namespace = p.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
        ORDER BY m.opened_at
        LIMIT 1
    ) e
    JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = e.dlq_entry_uuid
    WHERE f.case_id = p.id
    ORDER BY e.opened_at, e.dlq_entry_uuid
    LIMIT 1
) e ON true
ORDER BY p.harm DESC, p.id;

-- name: selectResolvedCases
SELECT c.case_id AS id, c.state, c.state_since, c.dlq_reason::text AS reason, c.detail_code, c.namespace, c.task_name, c.step_name,
    c.error_type, c.error_pattern, c.first_seen_at AS first_seen,
    CASE WHEN c.owned_until > now() THEN c.owner ELSE '' END AS owner,
    CASE WHEN c.owned_until > now() THEN c.owned_until END AS owned_until,
    CASE WHEN c.snoozed_until > now() THEN c.snoozed_until END AS snoozed_until,
    CASE WHEN c.snoozed_until > now() THEN c.snooze_above END AS snooze_above,
    coalesce(c.fixed_in, '') AS fixed_in, c.resolved_at, c.merged_into, c.updated_at,
    0::bigint AS entries, 0::bigint AS waiting, 0::bigint AS proving, 0::bigint AS failed_again, 0::bigint AS recovered,
    0::bigint AS recent, NULL::timestamptz AS oldest, NULL::timestamptz AS newest, 0::float8 AS harm,
    NULL::uuid AS entry_uuid, NULL::uuid AS case_key, 0::bigint AS total_cases, 0::bigint AS total_entries,
    0::bigint AS total_recent, NULL::timestamptz AS total_oldest
FROM tasker.cases c
WHERE c.state = 'resolved' AND c.merged_into IS NULL /* cases */
ORDER BY c.resolved_at DESC, c.case_id
LIMIT $1 OFFSET $2;

-- name: countUnclassified
-- Counts open investigations without a case by a small index.
SELECT count(*)
FROM tasker.case_members m
WHERE m.ended_at IS NULL AND m.fingerprint_version = 0 AND m.fingerprint IS NULL /* members */;
