-- tasker:finish
DROP INDEX CONCURRENTLY IF EXISTS tasker.tasks_dlq_ended_of_namespace;
