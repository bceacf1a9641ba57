-- name: selectItemsOfMap
-- A page contains at least one item. A filter by state scans all items, since an index on the state
-- would
-- prevent heap-only updates.
--
-- $1 task, $2 map step, $3 first ordinal, $4 maximum number of items plus one, $5 state, $6 maximum
-- number
-- of bytes.
WITH chosen AS MATERIALIZED (
    SELECT i.step_uuid, i.item_ordinal, coalesce(i.results_bytes, octet_length(i.results::text), 0)
        + coalesce(octet_length(i.error::text), 0) + octet_length(i.item::text) AS bytes
    FROM tasker.workflow_steps i
    WHERE i.task_uuid = $1 AND i.map_step_uuid = $2 AND i.item_ordinal >= $3 AND ($5 = '' OR i.state = $5)
    ORDER BY i.task_uuid, i.map_step_uuid, i.item_ordinal
    LIMIT $4
),
added AS MATERIALIZED (
    SELECT c.step_uuid, c.item_ordinal, c.place < $4 AND (c.place = 1 OR c.bytes <= $6) AS fits
    FROM (
        SELECT step_uuid, item_ordinal, sum(bytes) OVER (ORDER BY item_ordinal) AS bytes, row_number() OVER (ORDER BY item_ordinal) AS place
        FROM chosen
    ) c
)
SELECT
    s.step_uuid AS uuid, s.task_uuid, s.name, CASE WHEN s.is_decision THEN 'decision' ELSE s.step_type END AS type, s.handler, s.state, s.state_since,
    r.dependencies_satisfied, r.retry_eligible, r.ready_for_execution, r.total_parents, r.completed_parents,
    s.attempts, s.max_attempts, s.retryable, s.parent_uuids AS parents,
    CASE WHEN s.state = 'in_progress' THEN s.worker_uuid END AS worker_uuid, s.lease_expires_at,
    s.last_attempted_at, s.last_failure_at, s.next_retry_at, s.created_at, s.updated_at, s.completed_at,
    s.state = 'pending' AND s.decide_at IS NOT NULL AS decision_due, s.decided_at, coalesce(s.skip_reason, '') AS skip_reason,
    CASE WHEN s.step_type <> 'child' THEN s.wait_until END AS wait_until, s.reminders, s.remind_at, s.child_task_uuid,
    CASE WHEN s.step_type = 'external' THEN coalesce((
        SELECT a.assignee FROM tasker.human_steps a WHERE a.task_uuid = s.task_uuid AND a.step_uuid = s.step_uuid
    ), '') ELSE '' END AS assignee,
    s.map_step_uuid, s.item_ordinal AS ordinal, s.item,
    CASE WHEN s.items_total IS NOT NULL THEN tasker.item_counts(s.task_uuid, s.step_uuid) END AS counted,
    CASE WHEN s.checkpointed AND s.state NOT IN ('complete', 'resolved_manually', 'skipped', 'cancelled') THEN (
        SELECT jsonb_build_object('attempt', c.attempt, 'bytes', c.bytes, 'saved_at', c.saved_at)
        FROM tasker.step_checkpoints c
        WHERE c.task_uuid = s.task_uuid AND c.step_uuid = s.step_uuid
    ) END AS saved, (
        SELECT jsonb_build_object('due_at', q.due_at, 'warn_at', q.warn_at, 'overdue', CASE WHEN q.investigate THEN 'investigate' ELSE 'tell' END, 'source', q.source,
            'set_by', q.set_by, 'warned_at', q.warned_at, 'announced_at', q.announced_at, 'state', CASE
                WHEN CASE WHEN s.state IN ('complete', 'resolved_manually', 'skipped') THEN s.state_since END <= q.due_at THEN 'met'
                WHEN CASE WHEN s.state IN ('complete', 'resolved_manually', 'skipped') THEN s.state_since END > q.due_at THEN 'missed'
                WHEN (s.state = 'cancelled' OR q.ended_at IS NOT NULL) THEN 'ended'
                WHEN q.due_at <= now() THEN 'overdue'
                WHEN q.warn_at <= now() THEN 'soon'
                ELSE 'ahead' END)
        FROM tasker.deadlines q
        WHERE q.task_uuid = s.task_uuid AND q.step_uuid = s.step_uuid
    ) AS due, s.results, s.error, (SELECT min(a.item_ordinal) FROM added a WHERE NOT a.fits) AS next
FROM tasker.get_step_readiness_status($1, ARRAY(SELECT a.step_uuid FROM added a WHERE a.fits)) r
JOIN tasker.workflow_steps s ON s.step_uuid = r.step_uuid
WHERE s.task_uuid = $1
ORDER BY s.item_ordinal;
