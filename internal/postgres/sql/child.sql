-- name: stepsWithEndedChild
SELECT g.parent_task_uuid AS task_uuid, g.parent_step_uuid AS step_uuid
FROM tasker.child_signals g
WHERE g.kind = 'ended' AND g.created_at <= now()
  AND NOT EXISTS (
      SELECT FROM tasker.deferred_work w WHERE w.kind = 'child_ended' AND w.task_uuid = g.parent_task_uuid AND w.step_uuid = g.parent_step_uuid
  )
ORDER BY g.created_at
LIMIT $1;

-- name: childrenToCancel
SELECT g.child_uuid
FROM tasker.child_signals g
WHERE g.kind = 'cancel' AND g.created_at <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = 'cancel_child' AND w.task_uuid = g.child_uuid)
ORDER BY g.created_at
LIMIT $1;

-- name: takeEndedChildren
DELETE FROM tasker.child_signals g
USING unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
WHERE g.kind = 'ended' AND g.parent_step_uuid = d.step_uuid AND g.parent_task_uuid = d.task_uuid
  AND (d.task_uuid = ANY ($3) OR NOT EXISTS (SELECT FROM tasker.tasks t WHERE t.task_uuid = d.task_uuid));

-- name: stepsOfEndedChildren
-- Runs after the signals were removed, so that later changes of a child task create new signals.
SELECT s.task_uuid, s.step_uuid, t.template_uuid, s.name, s.fence, c.task_uuid AS child_uuid, c.state AS child_state, EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed') AS given_up
FROM (SELECT DISTINCT u.task_uuid, u.step_uuid FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)) d
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
JOIN tasker.tasks c ON c.task_uuid = s.child_task_uuid
WHERE s.state = 'pending' AND s.decided_at IS NOT NULL AND s.decide_at IS NULL AND t.state NOT IN ('pending', 'complete', 'cancelled')
  AND (c.state IN ('complete', 'cancelled') OR EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed'))
ORDER BY s.task_uuid, s.step_uuid;

-- name: lastResults
-- Includes small results first, so that as many as possible are included.
SELECT r.name, r.step_uuid, r.bytes, CASE WHEN sum(r.bytes) OVER (ORDER BY r.bytes, r.step_uuid) <= $2 THEN r.results -> 'result' END AS result
FROM (
    SELECT s.name, s.step_uuid, s.results, coalesce(s.results_bytes, octet_length(s.results::text))::bigint AS bytes
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = $1 AND s.child_uuids = '{}' AND s.state = 'complete' AND s.results ? 'result'
) r
ORDER BY r.step_uuid;

-- name: childState
SELECT c.state, EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed') AS failed FROM tasker.tasks c WHERE c.task_uuid = $1;

-- name: ancestors
WITH RECURSIVE above AS (
    SELECT t.task_uuid AS child_uuid, t.parent_task_uuid, t.parent_step_uuid, 1 AS level
    FROM tasker.tasks t
    WHERE t.task_uuid = $1 AND t.parent_task_uuid IS NOT NULL
    UNION ALL
    SELECT t.task_uuid, t.parent_task_uuid, t.parent_step_uuid, a.level + 1
    FROM above a
    JOIN tasker.tasks t ON t.task_uuid = a.parent_task_uuid AND t.parent_task_uuid IS NOT NULL
    WHERE a.level < $2
)
SELECT t.task_uuid, t.namespace, t.name, t.state, a.child_uuid, coalesce(s.name, '') AS step,
    coalesce(s.child_task_uuid = a.child_uuid AND s.state = 'pending' AND t.state NOT IN ('complete', 'cancelled'), false) AS waits
FROM above a
JOIN tasker.tasks t ON t.task_uuid = a.parent_task_uuid
LEFT JOIN tasker.workflow_steps s ON s.task_uuid = a.parent_task_uuid AND s.step_uuid = a.parent_step_uuid
ORDER BY a.level;

-- name: setChildren
WITH child AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) AS d (task_uuid, step_uuid, child_uuid)
),
signalled AS (
    INSERT INTO tasker.child_signals (kind, child_uuid, parent_task_uuid, parent_step_uuid)
    SELECT 'ended', d.child_uuid, d.task_uuid, d.step_uuid
    FROM child d
    JOIN tasker.tasks c ON c.task_uuid = d.child_uuid
    WHERE c.state = 'complete'
    ON CONFLICT DO NOTHING
)
UPDATE tasker.workflow_steps s
SET child_task_uuid = d.child_uuid
FROM child d
WHERE s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid;

-- name: detachChild
WITH signalled AS (
    INSERT INTO tasker.child_signals (kind, child_uuid, parent_task_uuid, parent_step_uuid)
    SELECT 'cancel', c.task_uuid, c.parent_task_uuid, c.parent_step_uuid
    FROM tasker.tasks c
    WHERE c.task_uuid = $3 AND c.parent_step_uuid = $2 AND c.state NOT IN ('complete', 'cancelled') AND NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed')
    ON CONFLICT DO NOTHING
)
UPDATE tasker.workflow_steps s
SET child_task_uuid = NULL, decided_at = NULL, decide_at = coalesce(s.decide_at, clock_timestamp()), wait_until = NULL, remind_at = NULL, updated_at = clock_timestamp()
WHERE s.task_uuid = $1 AND s.step_uuid = $2 AND s.state = 'pending' AND s.child_task_uuid = $3;

-- name: takeChildrenToCancel
WITH taken AS (
    DELETE FROM tasker.child_signals g
    WHERE g.kind = 'cancel' AND g.child_uuid = ANY ($1)
      AND (g.child_uuid = ANY ($2) OR NOT EXISTS (SELECT FROM tasker.tasks t WHERE t.task_uuid = g.child_uuid))
    RETURNING g.child_uuid, g.parent_task_uuid
)
SELECT c.task_uuid, c.state, k.parent_task_uuid,
    EXISTS (
        SELECT FROM tasker.tasks p
        WHERE p.task_uuid = k.parent_task_uuid AND (p.phase IS NOT NULL OR p.outcome IN ('compensated', 'nothing_to_compensate'))
    ) AS undo
FROM taken k
JOIN tasker.tasks c ON c.task_uuid = k.child_uuid
WHERE c.state NOT IN ('complete', 'cancelled') AND c.phase IS NULL AND NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed')
ORDER BY c.task_uuid;

-- name: leaveChildTasks
-- Requests that the open child tasks of steps are cancelled, because the steps no longer wait for
-- them.
INSERT INTO tasker.child_signals (kind, child_uuid, parent_task_uuid, parent_step_uuid)
SELECT 'cancel', c.task_uuid, c.parent_task_uuid, c.parent_step_uuid
FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)
JOIN tasker.tasks c ON c.parent_task_uuid = u.task_uuid AND c.parent_step_uuid = u.step_uuid AND c.state NOT IN ('complete', 'cancelled')
WHERE NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed')
ORDER BY c.task_uuid
ON CONFLICT DO NOTHING;
