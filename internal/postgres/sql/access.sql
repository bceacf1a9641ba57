-- name: insertKey
WITH made AS (
    INSERT INTO tasker.api_keys (key_uuid, name, grants, created_by, expires_at)
    SELECT $1, $2, $3, $4, clock_timestamp() + $5::interval
    WHERE (SELECT count(*) FROM (SELECT FROM tasker.api_keys WHERE revoked_at IS NULL LIMIT $8) k) < $8
    ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING
    RETURNING key_uuid
),
secret AS (
    INSERT INTO tasker.api_key_secrets (prefix, key_uuid, digest)
    SELECT $6, key_uuid, $7 FROM made
),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT $4, 'key.created', key_uuid::text, jsonb_build_object('name', $2::text, 'grants', $3::text[], 'prefix', $6::text) FROM made
)
SELECT key_uuid FROM made;

-- name: keyExists
SELECT EXISTS (SELECT FROM tasker.api_keys WHERE name = $1 AND revoked_at IS NULL);

-- name: lockKeys
SELECT pg_advisory_xact_lock(hashtextextended('tasker.api_keys', 0));

-- name: anyKey
SELECT EXISTS (SELECT FROM tasker.api_keys);

-- name: selectKeys
SELECT k.key_uuid AS uuid, k.name, k.grants, k.created_by, k.created_at, k.expires_at, k.last_used_at, k.revoked_at, k.revoked_by,
    array(
        SELECT s.prefix FROM tasker.api_key_secrets s
        WHERE s.key_uuid = k.key_uuid AND (s.ends_at IS NULL OR s.ends_at > clock_timestamp())
        ORDER BY s.created_at DESC, s.prefix
    ) AS prefixes
FROM tasker.api_keys k
WHERE ($3 OR k.revoked_at IS NULL)
  AND ($4 = '' OR k.name = $4 OR k.key_uuid = (SELECT s.key_uuid FROM tasker.api_key_secrets s WHERE s.prefix = $4))
ORDER BY k.created_at DESC, k.key_uuid DESC
LIMIT $1 OFFSET $2;

-- name: selectKey
SELECT k.key_uuid AS uuid, k.name, k.grants, k.created_by, k.created_at, k.expires_at, k.last_used_at, k.revoked_at, k.revoked_by,
    array(
        SELECT s.prefix FROM tasker.api_key_secrets s
        WHERE s.key_uuid = k.key_uuid AND (s.ends_at IS NULL OR s.ends_at > clock_timestamp())
        ORDER BY s.created_at DESC, s.prefix
    ) AS prefixes
FROM tasker.api_keys k
WHERE k.key_uuid = $1;

-- name: rotateKey
-- All previous secrets expire after the grace period $4 or earlier.
WITH live AS MATERIALIZED (
    SELECT key_uuid, name FROM tasker.api_keys
    WHERE key_uuid = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
    FOR NO KEY UPDATE
),
old AS (
    UPDATE tasker.api_key_secrets s SET ends_at = least(s.ends_at, clock_timestamp() + $4::interval)
    FROM live l WHERE s.key_uuid = l.key_uuid
),
secret AS (
    INSERT INTO tasker.api_key_secrets (prefix, key_uuid, digest) SELECT $2, key_uuid, $3 FROM live
),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT $5, 'key.rotated', key_uuid::text, jsonb_build_object('name', name, 'prefix', $2::text) FROM live
)
SELECT key_uuid FROM live;

-- name: revokeKey
WITH revoked AS (
    UPDATE tasker.api_keys SET revoked_at = clock_timestamp(), revoked_by = $2
    WHERE key_uuid = $1 AND revoked_at IS NULL
    RETURNING key_uuid, name
),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT $2, 'key.revoked', key_uuid::text, jsonb_build_object('name', name) FROM revoked
)
SELECT key_uuid FROM revoked;

-- name: selectTokens
SELECT s.prefix, s.digest, k.key_uuid, NULL::uuid AS session_uuid, '' AS subject, k.name, k.grants, '{}'::text[] AS groups,
    least(s.ends_at, k.expires_at) - clock_timestamp() AS remaining
FROM unnest($1::text[]) AS p (prefix)
JOIN tasker.api_key_secrets s ON s.prefix = p.prefix
JOIN tasker.api_keys k ON k.key_uuid = s.key_uuid
WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
  AND (s.ends_at IS NULL OR s.ends_at > clock_timestamp());

-- name: selectSessions
SELECT '' AS prefix, s.digest, s.key_uuid, s.session_uuid, s.subject, coalesce(k.name, '') AS name, coalesce(k.grants, '{}') AS grants, s.groups,
    least(s.ends_at, s.seen_at + $2::interval, k.expires_at) - clock_timestamp() AS remaining
FROM unnest($1::bytea[]) AS d (digest)
JOIN tasker.sessions s ON s.digest = d.digest
LEFT JOIN tasker.api_keys k ON k.key_uuid = s.key_uuid
WHERE s.ended_at IS NULL AND s.ends_at > clock_timestamp() AND s.seen_at + $2::interval > clock_timestamp()
  AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp());

-- name: selectValidDigests
SELECT s.digest
FROM tasker.api_key_secrets s
JOIN tasker.api_keys k ON k.key_uuid = s.key_uuid
WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
  AND (s.ends_at IS NULL OR s.ends_at > clock_timestamp())
UNION ALL
(SELECT digest FROM tasker.sessions
 WHERE ended_at IS NULL AND ends_at > clock_timestamp() AND seen_at + $1::interval > clock_timestamp()
 ORDER BY session_uuid DESC LIMIT $2)
UNION ALL
SELECT digest FROM tasker.sign_ins WHERE created_at > clock_timestamp() - interval '10 min';

-- name: insertSession
-- Also removes up to 20 old sessions, and surplus sessions of the subject: ended ones first, then
-- the
-- oldest.
WITH old AS (
    DELETE FROM tasker.sessions WHERE session_uuid IN (
        SELECT session_uuid FROM tasker.sessions
        WHERE ends_at < clock_timestamp() - interval '1 day' ORDER BY ends_at LIMIT 20 FOR UPDATE SKIP LOCKED
    )
),
over AS (
    DELETE FROM tasker.sessions WHERE session_uuid IN (
        SELECT session_uuid FROM tasker.sessions WHERE subject = $3
        ORDER BY ended_at IS NULL AND ends_at > clock_timestamp() DESC, created_at DESC OFFSET $8 - 1
    )
),
made AS (
    INSERT INTO tasker.sessions (session_uuid, digest, subject, key_uuid, groups, ends_at)
    VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $6::interval)
)
INSERT INTO tasker.audit_events (actor, action, subject, data)
VALUES ($3, 'session.created', $1::uuid::text, jsonb_build_object('from', $7::text));

-- name: endSession
WITH ended AS (
    UPDATE tasker.sessions SET ended_at = clock_timestamp() WHERE digest = $1 AND ended_at IS NULL
    RETURNING session_uuid, subject
)
INSERT INTO tasker.audit_events (actor, action, subject)
SELECT subject, 'session.ended', session_uuid::text FROM ended;

-- name: insertSignIn
-- Also removes up to 20 abandoned sign-ins, and the oldest ones beyond the limit.
WITH old AS (
    DELETE FROM tasker.sign_ins WHERE digest IN (
        SELECT digest FROM tasker.sign_ins
        WHERE created_at < clock_timestamp() - interval '10 min' ORDER BY created_at LIMIT 20 FOR UPDATE SKIP LOCKED
    )
),
over AS (
    DELETE FROM tasker.sign_ins WHERE digest IN (
        SELECT digest FROM tasker.sign_ins ORDER BY created_at DESC OFFSET $6 - 1 LIMIT 20
    )
)
INSERT INTO tasker.sign_ins (digest, state, nonce, verifier, back) VALUES ($1, $2, $3, $4, $5);

-- name: takeSignIn
DELETE FROM tasker.sign_ins WHERE digest = $1 AND created_at > clock_timestamp() - interval '10 min'
RETURNING state, nonce, verifier, back;

-- name: accessRevision
SELECT revision FROM tasker.access_revision;

-- name: noteKeyUse
UPDATE tasker.api_keys k SET last_used_at = clock_timestamp()
FROM (
    SELECT key_uuid FROM tasker.api_keys
    WHERE key_uuid = ANY ($1) AND (last_used_at IS NULL OR last_used_at < clock_timestamp() - interval '30 seconds')
    ORDER BY key_uuid FOR NO KEY UPDATE SKIP LOCKED
) u
WHERE k.key_uuid = u.key_uuid;

-- name: noteSessionUse
UPDATE tasker.sessions s SET seen_at = clock_timestamp()
FROM (
    SELECT session_uuid FROM tasker.sessions
    WHERE session_uuid = ANY ($1) AND seen_at < clock_timestamp() - interval '30 seconds'
    ORDER BY session_uuid FOR NO KEY UPDATE SKIP LOCKED
) u
WHERE s.session_uuid = u.session_uuid;

-- name: selectNamespace
SELECT n.namespaces
FROM (
    SELECT ARRAY[namespace] AS namespaces FROM tasker.tasks WHERE $1 = 'task' AND task_uuid = $2
    UNION ALL
    SELECT ARRAY[namespace] FROM tasker.task_requests WHERE $1 = 'task' AND task_uuid = $2
    UNION ALL
    SELECT ARRAY[namespace] FROM tasker.tasks_dlq WHERE $1 = 'investigation' AND dlq_entry_uuid = $2
    UNION ALL
    SELECT ARRAY[namespace] FROM tasker.cases WHERE $1 = 'case' AND case_id = $2
    UNION ALL
    SELECT ARRAY[namespace] FROM tasker.incidents WHERE $1 = 'incident' AND incident_id = $2
    UNION ALL
    SELECT namespaces FROM tasker.workers WHERE $1 = 'worker' AND worker_uuid = $2
    UNION ALL
    SELECT ARRAY[namespace] FROM tasker.outbox WHERE $1 = 'event' AND event_uuid = $2
    UNION ALL
    SELECT namespaces FROM tasker.operations WHERE $1 = 'operation' AND operation_uuid = $2
    UNION ALL
    SELECT ARRAY[namespace] FROM tasker.holds WHERE $1 = 'hold' AND hold_uuid = $2
    UNION ALL
    SELECT ARRAY[namespace] FROM tasker.schedules WHERE $1 = 'schedule' AND schedule_uuid = $2
) n;
