package postgres

import (
	"context"

	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// SessionFilter selects and pages sessions, newest first.
type SessionFilter struct {
	Subject       string        // optional
	Idle          time.Duration // duration of an unused session
	Limit, Offset int
}

// Session ids are ordered by creation.
const selectOpenSessions = `
SELECT s.session_uuid AS uuid, s.subject, s.key_uuid, s.groups, s.created_at, s.seen_at, least(s.ends_at, s.seen_at + $4::interval) AS ends_at
FROM tasker.sessions s
LEFT JOIN tasker.api_keys k ON k.key_uuid = s.key_uuid
WHERE s.ended_at IS NULL AND s.ends_at > clock_timestamp() AND s.seen_at + $4::interval > clock_timestamp()
  AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
  AND ($3 = '' OR s.subject = $3)
ORDER BY s.session_uuid DESC
LIMIT $1 OFFSET $2`

// OpenSessions lists open sessions and reports whether there are more.
func (db *DB) OpenSessions(ctx context.Context, f SessionFilter) ([]access.Session, bool, error) {
	return pageOf[access.Session](ctx, db.pool, f.Limit, "list sessions", selectOpenSessions, f.Limit+1, f.Offset, f.Subject, f.Idle)
}

const endSessions = `
WITH ended AS (
    UPDATE tasker.sessions SET ended_at = clock_timestamp()
    WHERE (session_uuid = $1 OR subject = $2) AND ended_at IS NULL AND ends_at > clock_timestamp()
    RETURNING session_uuid, subject
),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT $3, 'session.ended', session_uuid::text, jsonb_build_object('of', subject) FROM ended
)
SELECT count(*) FROM ended`

// EndSessions ends a session, or all sessions of a subject, and returns their number.
func (db *DB) EndSessions(ctx context.Context, session tasker.ID, subject, actor string) (int, error) {
	n, err := value[int](ctx, db.pool, endSessions, session, subject, actor)
	return n, wrap(err, "end sessions")
}
