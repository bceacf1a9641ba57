-- tasker:no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS ready_steps_by_due ON tasker.ready_steps (namespace, handler, priority DESC, due_at) WHERE due_at IS NOT NULL;
