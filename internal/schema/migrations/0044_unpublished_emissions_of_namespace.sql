-- tasker:no-transaction
-- The same of what waits or is set aside, which may be little beside very much that was published.
-- The last condition is always true: queries that do not say it, because they are about all namespaces, leave the index alone.
CREATE INDEX CONCURRENTLY IF NOT EXISTS emissions_unpublished_by_namespace ON tasker.emissions (namespace, sink, state, position) WHERE state <> 'published' AND namespace > '';
