-- tasker:finish
DROP INDEX CONCURRENTLY IF EXISTS tasker.steps_by_lease;
