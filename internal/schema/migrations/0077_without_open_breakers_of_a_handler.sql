-- tasker:finish
DROP INDEX CONCURRENTLY IF EXISTS tasker.one_open_breaker_of_a_handler;
