-- tasker:no-transaction
-- While the rest of a breaker is let go, another one may begin.
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS one_blocking_breaker_of_a_handler ON tasker.holds (namespace, handler) WHERE kind = 'breaker' AND blocks;
