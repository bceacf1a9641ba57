-- tasker:finish
DROP INDEX CONCURRENTLY IF EXISTS tasker.tasks_dlq_by_end;
