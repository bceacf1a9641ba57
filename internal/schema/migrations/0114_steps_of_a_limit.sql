-- tasker:no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS held_steps_of_limit ON tasker.held_steps (namespace, handler, limit_key_id, priority DESC, state_since) WHERE limit_key_id IS NOT NULL;
