-- tasker:no-transaction
-- Those who may see some namespaces only have the newest investigations of each.
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_dlq_by_namespace ON tasker.tasks_dlq (namespace, dlq_timestamp DESC, dlq_entry_uuid DESC);
