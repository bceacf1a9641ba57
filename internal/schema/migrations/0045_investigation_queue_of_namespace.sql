-- tasker:no-transaction
-- The investigation queue of those who may see some namespaces only.
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_dlq_queue_of_namespace ON tasker.tasks_dlq (namespace, (recovered_at IS NOT NULL), priority_at, dlq_entry_uuid) WHERE resolution_status = 'pending' AND namespace > '';
