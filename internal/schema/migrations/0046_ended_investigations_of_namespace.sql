-- tasker:no-transaction
-- How many investigations of a namespace have ended over time.
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_dlq_ended_of_namespace ON tasker.tasks_dlq (namespace, resolved_at) WHERE resolution_status <> 'pending' AND namespace > '';
