-- tasker:no-transaction
-- Where the events of a namespace begin and end that some transactions have written.
CREATE INDEX CONCURRENTLY IF NOT EXISTS outbox_by_namespace_and_transaction ON tasker.outbox (namespace, written_in, position);
