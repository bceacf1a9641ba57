-- tasker:no-transaction
-- The stream of events of those who may see some namespaces only.
CREATE INDEX CONCURRENTLY IF NOT EXISTS outbox_by_namespace ON tasker.outbox (namespace, position);
