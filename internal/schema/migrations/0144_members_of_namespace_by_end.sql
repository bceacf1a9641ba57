-- tasker:no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS case_members_of_namespace_by_end ON tasker.case_members (namespace, ended_at)
    INCLUDE (resolution_status, acted_at, failed_again_at, dlq_entry_uuid) WHERE ended_at IS NOT NULL;
