-- tasker:no-transaction
-- Lists of what became of events, of those who may see some namespaces only.
CREATE INDEX CONCURRENTLY IF NOT EXISTS emissions_by_namespace ON tasker.emissions (namespace, sink, position);
