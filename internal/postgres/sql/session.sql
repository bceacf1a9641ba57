-- name: selectOpenSessions
-- Session ids are ordered by creation.
SELECT s.session_uuid AS uuid, s.subject, s.key_uuid, s.groups, s.created_at, s.seen_at, least(s.ends_at, s.seen_at + $4::interval) AS ends_at
FROM tasker.sessions s
LEFT JOIN tasker.api_keys k ON k.key_uuid = s.key_uuid
WHERE s.ended_at IS NULL AND s.ends_at > clock_timestamp() AND s.seen_at + $4::interval > clock_timestamp()
  AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
  AND ($3 = '' OR s.subject = $3)
ORDER BY s.session_uuid DESC
LIMIT $1 OFFSET $2;

-- name: endSessions
WITH ended AS (
    UPDATE tasker.sessions SET ended_at = clock_timestamp()
    WHERE (session_uuid = $1 OR subject = $2) AND ended_at IS NULL AND ends_at > clock_timestamp()
    RETURNING session_uuid, subject
),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT $3, 'session.ended', session_uuid::text, jsonb_build_object('of', subject) FROM ended
)
SELECT count(*) FROM ended;
