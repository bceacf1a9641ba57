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

// OpenSessions lists open sessions and reports whether there are more.
func (db *DB) OpenSessions(ctx context.Context, f SessionFilter) ([]access.Session, bool, error) {
	return pageOf[access.Session](ctx, db.pool, f.Limit, "list sessions", stmt("selectOpenSessions"), f.Limit+1, f.Offset, f.Subject, f.Idle)
}

// EndSessions ends a session, or all sessions of a subject, and returns their number.
func (db *DB) EndSessions(ctx context.Context, session tasker.ID, subject, actor string) (int, error) {
	n, err := value[int](ctx, db.pool, stmt("endSessions"), session, subject, actor)
	return n, wrap(err, "end sessions")
}
