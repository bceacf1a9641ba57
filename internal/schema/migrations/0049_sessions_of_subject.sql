-- tasker:no-transaction
-- The sessions of one subject are bounded.
CREATE INDEX CONCURRENTLY IF NOT EXISTS sessions_by_subject ON tasker.sessions (subject, created_at);
