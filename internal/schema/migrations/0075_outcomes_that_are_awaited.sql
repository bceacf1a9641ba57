-- tasker:no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS hold_releases_awaited ON tasker.hold_releases (hold_uuid) WHERE outcome IS NULL;
