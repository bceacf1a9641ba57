-- snapshot_keys are the keys that task_snapshots itself writes; all others stand in
-- documents: context, template, results, errors, details. A test compares them.
CREATE OR REPLACE FUNCTION tasker.snapshot_keys() RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT '{
        schema_version, task_uuid, namespace, task_name, task_version, current_state, original_state, time_in_state_minutes,
        threshold_minutes, task_age_minutes, priority, detected_at, detected_by, task, thresholds, template, steps, edges, transitions,
        context, initiator, source_system, reason, tags, correlation_id, parent_correlation_id, recreated_from, parent_task_uuid, parent_step_uuid, phase, created_at, start_at,
        max_duration_ends_at,
        waiting_for_dependencies_minutes, waiting_for_retry_minutes, steps_in_process_minutes, max_duration_minutes,
        step_uuid, name, type, handler, state, state_since, dependencies, dependencies_open, attempts, max_attempts, retryable,
        worker_uuid, lease_expires_at, last_attempted_at, last_failure_at, next_retry_at, wait_until, skip_reason, child_task_uuid, completed_at, results, error, failures, failures_omitted,
        items, total, pending, enqueued, in_progress, completed, retrying, failed, cancelled, skipped, item, map_step_uuid, ordinal, value,
        attempt, at, event, from, to, transition_id, from_state, to_state, actor, detail,
        omitted, bytes, sha256, read_at, message, snapshot_failed
    }'::text[]
$$;
COMMENT ON FUNCTION tasker.snapshot_keys() IS 'The keys of a snapshot that are not of somebody else''s documents.';
