-- tasker:no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS ready_steps_past_limit ON tasker.ready_steps (namespace, handler) WHERE limit_passed_at IS NOT NULL;
