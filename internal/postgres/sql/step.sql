-- name: selectSteps
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
    ) AS due, d.results, d.error
FROM tasker.get_step_readiness_status($1) r
JOIN tasker.workflow_steps s ON s.step_uuid = r.step_uuid
LEFT JOIN tasker.step_documents($1, $2) d ON d.step_uuid = s.step_uuid
WHERE s.task_uuid = $1 AND s.map_step_uuid IS NULL
ORDER BY s.step_uuid;

-- name: selectFailedItems
-- Items that have failed permanently come first.
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
    ) AS due, s.results, s.error
FROM tasker.get_step_readiness_status($1, ARRAY(
    SELECT i.step_uuid
    FROM tasker.workflow_steps i
    WHERE i.task_uuid = $1 AND i.map_step_uuid IS NOT NULL AND (i.state = 'error' OR i.step_uuid = $2)
    ORDER BY i.step_uuid = $2 DESC, i.next_retry_at IS NOT NULL, i.map_step_uuid, i.item_ordinal
    LIMIT $3
)) r
JOIN tasker.workflow_steps s ON s.step_uuid = r.step_uuid
WHERE s.task_uuid = $1
ORDER BY s.step_uuid;

-- name: redactErrors
SELECT tasker.redact_error(e.doc::jsonb) AS shown
FROM unnest($1::text[]) WITH ORDINALITY AS e (doc, n)
ORDER BY e.n;

-- name: selectStep
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
    ) AS due, s.results, s.error
FROM tasker.get_step_readiness_status($1, $2) r
JOIN tasker.workflow_steps s ON s.step_uuid = r.step_uuid
WHERE s.task_uuid = $1;

-- name: stepNamed
SELECT s.step_uuid FROM tasker.workflow_steps s WHERE s.task_uuid = $1 AND s.name = $2;
