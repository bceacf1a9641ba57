-- tasker:finish
DROP INDEX CONCURRENTLY IF EXISTS tasker.steps_to_claim;
