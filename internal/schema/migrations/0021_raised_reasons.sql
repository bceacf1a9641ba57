-- An investigation takes over the reason of something weightier that happens to its
-- task while it is open, so that the queue, the counts, the badge and the events are
-- about what is most urgent. What it was opened for stays beside it and in its history.

ALTER TABLE tasker.tasks_dlq
    ADD COLUMN original_reason      tasker.dlq_reason,
    ADD COLUMN original_detail_code text;
COMMENT ON COLUMN tasker.tasks_dlq.original_reason IS 'The reason it was opened for, when a weightier one has replaced that since; null otherwise.';
COMMENT ON COLUMN tasker.tasks_dlq.original_detail_code IS 'The detail code it was opened for, when a weightier reason has replaced that since; null otherwise.';
COMMENT ON COLUMN tasker.tasks_dlq.priority_at IS 'dlq_timestamp less the base priority of the reason in minutes: the order of the investigation queue, which time does not change because age grows equally for all.';
COMMENT ON TABLE tasker.tasks_dlq IS 'Investigations: why a task is stuck, as evidence, and who looked into it. Only a weightier reason replaces the reason of an open one.';

DROP TRIGGER entry_evidence_never_changes ON tasker.tasks_dlq;
DROP TRIGGER entry_case_never_changes ON tasker.tasks_dlq;
CREATE TRIGGER entry_evidence_never_changes
    BEFORE UPDATE ON tasker.tasks_dlq
    FOR EACH ROW
    WHEN (
        OLD.task_uuid IS DISTINCT FROM NEW.task_uuid
        OR OLD.original_state IS DISTINCT FROM NEW.original_state
        OR OLD.detected_by IS DISTINCT FROM NEW.detected_by
        OR OLD.dlq_timestamp IS DISTINCT FROM NEW.dlq_timestamp
        OR OLD.task_snapshot IS DISTINCT FROM NEW.task_snapshot
        OR OLD.predecessor_uuid IS DISTINCT FROM NEW.predecessor_uuid
        OR OLD.created_at IS DISTINCT FROM NEW.created_at
        OR (OLD.namespace, OLD.task_name) IS DISTINCT FROM (NEW.namespace, NEW.task_name)
        -- The cause: replaced as a whole, and only by a weightier one.
        OR (OLD.dlq_reason, OLD.detail_code, OLD.step_uuid, OLD.priority_at, OLD.step_name, OLD.error_pattern, OLD.case_key,
                OLD.original_reason, OLD.original_detail_code)
            IS DISTINCT FROM (NEW.dlq_reason, NEW.detail_code, NEW.step_uuid, NEW.priority_at, NEW.step_name, NEW.error_pattern, NEW.case_key,
                NEW.original_reason, NEW.original_detail_code)
            AND (OLD.resolution_status <> 'pending' OR NEW.resolution_status <> 'pending'
                OR NEW.dlq_reason = OLD.dlq_reason OR NEW.priority_at >= OLD.priority_at
                OR NEW.original_reason IS DISTINCT FROM coalesce(OLD.original_reason, OLD.dlq_reason)
                OR NEW.original_detail_code IS DISTINCT FROM coalesce(OLD.original_detail_code, OLD.detail_code))
    )
    EXECUTE FUNCTION tasker.refuse_change_of_evidence();
