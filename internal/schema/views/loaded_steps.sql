-- Steps as a server loads them to decide what happens to them, without documents.
CREATE OR REPLACE VIEW tasker.loaded_steps AS
SELECT x.task_uuid, x.step_uuid, x.step_type, x.is_decision IS NOT NULL AS is_decision, coalesce(x.join_rule, '') AS join_rule,
    x.namespace, x.handler, x.child_uuids, x.retryable, x.max_attempts, x.backoff, x.backoff_base_ms, x.max_backoff_ms, x.backoff_jitter,
    coalesce(x.timeout_ms, 0) AS timeout_ms, coalesce(x.remind_first_s, 0) AS remind_first_s, x.priority,
    x.state, x.state_since, x.attempts, x.fence, x.parents_open, x.next_retry_at, x.awaits_worker_since,
    coalesce(x.state = 'error' AND x.error ->> 'type' = 'queue_expiry', false) AS unclaimed, x.queue_expiries,
    x.decide_at, x.decided_at, x.wait_until, x.remind_at, x.reminders, x.worker_uuid, x.lease_expires_at,
    x.items_total, x.items_limit, coalesce(x.items_free, 0) AS items_free, coalesce(x.item_next, 0) AS item_next, x.item_under_way,
    x.map_step_uuid, coalesce(x.item_ordinal, 0) AS item_ordinal, x.results_bytes, x.inputs_bytes,
    x.unwritten, x.moves_id, x.enqueued_at, x.last_attempted_at
FROM tasker.workflow_steps x;
COMMENT ON VIEW tasker.loaded_steps IS 'Steps as a server loads them to decide what happens to them, without their documents. Internal: its columns may change.';
