-- name: selectUnclassified
SELECT m.dlq_entry_uuid AS entry_uuid, m.revision, m.namespace, m.task_name, m.step_name, m.dlq_reason::text AS reason, m.detail_code,
    coalesce(m.error_type, '') AS error_type, coalesce(m.error_message, '') AS error_message, coalesce(m.error_fingerprint, '') AS error_fingerprint,
    m.task_version, coalesce(w.name, m.worker_name) AS worker_name, coalesce(w.version, m.worker_version) AS worker_version, m.opened_at, m.attempted_at,
    m.fingerprint IS NULL AS fresh
FROM (
    SELECT * FROM tasker.case_members
    WHERE ended_at IS NULL AND fingerprint_version < $1
    ORDER BY fingerprint_version, opened_at
    LIMIT $2
    FOR NO KEY UPDATE SKIP LOCKED -- the next call classifies locked ones
) m
LEFT JOIN tasker.workers w ON w.worker_uuid = CASE WHEN m.worker_uuid ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN m.worker_uuid::uuid END;

-- name: selectKnown
-- A case that was reopened without a regression may still regress unless it has an owner.
SELECT f.fingerprint, f.case_id, c.state, coalesce(c.resolved_at, CASE WHEN r.regressed_at > r.resolved_at THEN NULL ELSE r.resolved_at END) AS resolved_at,
    coalesce(c.fixed_in, '') AS fixed_in
FROM tasker.case_fingerprints f
JOIN tasker.cases c ON c.case_id = f.case_id
CROSS JOIN LATERAL (
    SELECT max(h.changed_at) FILTER (WHERE h.metadata ->> 'to' = 'resolved') AS resolved_at, max(h.changed_at) FILTER (WHERE h.metadata ->> 'to' = 'regressed') AS regressed_at
    FROM tasker.case_history h
    WHERE h.case_id = c.case_id AND h.event = 'state_changed' AND c.state IN ('ongoing', 'escalating') AND coalesce(c.owned_until <= now(), true)
) r
WHERE f.fingerprint = ANY ($1);

-- name: insertCases
WITH found AS (
    SELECT u.*, tasker.uuid_generate_v7() AS case_id
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::timestamptz[], $10::text[])
        AS u (fingerprint, namespace, task_name, step_name, reason, detail_code, error_type, error_pattern, first_seen_at, split_from)
),
cases AS (
    INSERT INTO tasker.cases (case_id, namespace, task_name, step_name, dlq_reason, detail_code, error_type, error_pattern, state_since, first_seen_at, updated_at)
    SELECT case_id, namespace, task_name, step_name, reason::tasker.dlq_reason, detail_code, error_type, error_pattern, clock_timestamp(), first_seen_at, clock_timestamp()
    FROM found
),
fingerprints AS (
    INSERT INTO tasker.case_fingerprints (fingerprint, case_id, home_case_id, version, error_type, error_pattern, first_seen_at)
    SELECT fingerprint, case_id, case_id, $11, error_type, error_pattern, first_seen_at
    FROM found
),
history AS (
    INSERT INTO tasker.case_history (case_id, event, actor, metadata)
    SELECT case_id, 'opened', 'tasker', CASE WHEN split_from <> '' THEN jsonb_build_object('split_from', split_from) END
    FROM found
)
SELECT fingerprint, case_id FROM found;

-- name: reopenCases
WITH reopened AS (
    UPDATE tasker.cases c
    SET state = u.state, state_since = clock_timestamp(), updated_at = clock_timestamp(), resolved_at = NULL, level = CASE WHEN c.state = 'resolved' THEN 0 ELSE c.level END,
        owner = CASE WHEN c.state <> 'resolved' THEN c.owner END, owned_until = CASE WHEN c.state <> 'resolved' THEN c.owned_until END
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) AS u (case_id, was, state, notes)
    WHERE c.case_id = u.case_id AND c.state = u.was
    RETURNING c.case_id, u.was, c.state, u.notes
)
INSERT INTO tasker.case_history (case_id, event, actor, notes, metadata)
SELECT case_id, 'state_changed', 'tasker', notes, jsonb_build_object('from', was, 'to', state)
FROM reopened;

-- name: updateMembers
UPDATE tasker.case_members m
SET fingerprint = u.fingerprint, fingerprint_version = $1, worker_name = u.worker_name, worker_version = u.worker_version
FROM unnest($2::uuid[], $3::integer[], $4::uuid[], $5::text[], $6::text[]) AS u (entry, revision, fingerprint, worker_name, worker_version)
WHERE m.dlq_entry_uuid = u.entry AND m.revision = u.revision;

-- name: selectRefinements
SELECT fingerprint, case_id, field, literal
FROM tasker.case_refinements
WHERE fingerprint = ANY ($1)
ORDER BY created_at, refinement_id;

-- name: tryLockCases
SELECT pg_try_advisory_xact_lock(hashtextextended('tasker.cases', 0));

-- name: lockCases
SELECT pg_advisory_xact_lock(hashtextextended('tasker.cases', 0));

-- name: updateCaseStates
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
evaluated AS (
    SELECT c.case_id, c.state AS was, coalesce(o.entries, 0) AS entries, coalesce(o.recent, 0) AS recent,
        greatest(c.level, tasker.case_level(coalesce(o.entries, 0))) AS level, CASE WHEN c.owned_until > now() THEN c.owner END AS owner,
        tasker.case_state(c.state, c.state_since, c.first_seen_at, c.level, c.snoozed_until, c.snooze_above,
            coalesce(c.owned_until > now(), false) OR coalesce(o.acted > CASE WHEN c.state = 'regressed' THEN c.state_since ELSE '-infinity' END, false), coalesce(o.entries, 0), coalesce(o.recent, 0), coalesce(o.earlier, 0), now()) AS state
    FROM tasker.cases c
    LEFT JOIN open o ON o.case_id = c.case_id
    WHERE c.state <> 'resolved'
),
moved AS (
    UPDATE tasker.cases c
    SET state = j.state, level = CASE WHEN j.state = 'resolved' THEN 0 ELSE j.level END,
        state_since = CASE WHEN j.state = j.was THEN c.state_since ELSE clock_timestamp() END,
        resolved_at = CASE WHEN j.state = 'resolved' THEN clock_timestamp() END,
        snoozed_until = CASE WHEN j.state <> 'resolved' AND (j.was <> 'resting' OR j.state = 'resting') THEN c.snoozed_until END,
        snooze_above = CASE WHEN j.state <> 'resolved' AND (j.was <> 'resting' OR j.state = 'resting') THEN c.snooze_above END,
        owner = CASE WHEN j.state <> 'resolved' THEN c.owner END, owned_until = CASE WHEN j.state <> 'resolved' THEN c.owned_until END,
        updated_at = clock_timestamp()
    FROM evaluated j
    WHERE c.case_id = j.case_id AND c.state = j.was AND (j.state <> j.was OR j.level > c.level)
    RETURNING c.case_id, c.namespace, j.was, c.state, j.entries, j.recent, j.owner
),
history AS (
    INSERT INTO tasker.case_history (case_id, event, actor, metadata)
    SELECT case_id, 'state_changed', 'tasker', jsonb_build_object('from', was, 'to', state, 'open', entries, 'recent', recent)
        || CASE WHEN state = 'resolved' AND owner IS NOT NULL THEN jsonb_build_object('owner', owner) ELSE '{}' END
    FROM moved
    WHERE state <> was
    ORDER BY case_id
)
SELECT case_id, namespace, was AS "from", state AS "to", entries
FROM moved
WHERE state <> was
ORDER BY case_id;
