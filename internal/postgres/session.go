package postgres

import (
	"context"

	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// SessionFilter selects a page of sessions, newest first.
type SessionFilter struct {
	Subject       string        // empty selects all
	Idle          time.Duration // a session that was not used for this long has ended
	Limit, Offset int
}

// OpenSessions lists open sessions and reports whether there are more.
func (db *DB) OpenSessions(ctx context.Context, f SessionFilter) ([]access.Session, bool, error) {
	return queryPage[access.Session](ctx, db.pool, f.Limit, "list sessions", statement("selectOpenSessions"), f.Limit+1, f.Offset, f.Subject, f.Idle)
}

// EndSessions ends a session or all sessions of a subject. It returns the number of ended sessions.
func (db *DB) EndSessions(ctx context.Context, session tasker.ID, subject, actor string) (int, error) {
	n, err := queryValue[int](ctx, db.pool, statement("endSessions"), session, subject, actor)
	return n, wrapError(err, "end sessions")
}
