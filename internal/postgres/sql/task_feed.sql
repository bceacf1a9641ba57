-- name: taskPosition
-- The position after all transitions of a task.
SELECT coalesce((SELECT max(h.transition_id) FROM tasker.task_transitions h WHERE h.task_uuid = $1), 0) AS task_after,
    coalesce((SELECT max(h.transition_id) FROM tasker.step_history h WHERE h.task_uuid = $1), 0) AS step_after,
    clock_timestamp() AS since;

-- name: taskStates
SELECT f.place, coalesce(t.state, '') AS state, coalesce(t.state = 'error' AND t.phase IS NULL AND EXISTS (
    SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid AND d.resolution_status = 'permanently_failed'
), false) AS permanently_failed
FROM unnest($1::int[], $2::uuid[]) AS f (place, task_uuid)
LEFT JOIN tasker.tasks t ON t.task_uuid = f.task_uuid;

-- name: taskChanges
-- Reads the transitions of tasks after their positions, at most $6 history rows of each kind per
-- task. A history row of a step has the enqueue and the claim before it, unless these are separate
-- rows. Those of attempts in progress are in the rows of the steps.
WITH followed AS MATERIALIZED (
    SELECT * FROM unnest($1::int[], $2::uuid[], $3::bigint[], $4::bigint[], $5::timestamptz[]) AS f (place, task_uuid, task_after, step_after, since)
),
written AS MATERIALIZED (
    SELECT f.place, f.step_after, h.*
    FROM followed f
    CROSS JOIN LATERAL (
        SELECT * FROM tasker.step_history h
        WHERE h.task_uuid = f.task_uuid AND h.transition_id > f.step_after
        ORDER BY h.task_uuid, h.transition_id
        LIMIT $6
    ) h
),
active AS MATERIALIZED (
    SELECT f.place, f.since, s.task_uuid, s.step_uuid, s.unwritten, s.moves_id, s.attempts, s.worker_uuid, s.last_attempted_at,
        CASE WHEN s.unwritten = 1 THEN s.state_since ELSE s.enqueued_at END AS enqueued_at
    FROM followed f
    CROSS JOIN LATERAL (
        SELECT * FROM tasker.workflow_steps s
        WHERE s.task_uuid = f.task_uuid AND s.unwritten > 0 AND s.state_since >= f.since
        ORDER BY s.state_since
        LIMIT 2000 -- the others follow when their attempts end
    ) s
),
moves AS (
    SELECT w.place, w.transition_id AS row_id, w.task_uuid, w.transition_id, w.step_uuid, w.from_state, w.to_state, w.event, w.attempt, w.worker_uuid, w.actor,
        w.reason, w.detail, w.created_at, w.operation_uuid
    FROM written w
    UNION ALL
    SELECT w.place, w.transition_id, w.task_uuid, w.moves_id, w.step_uuid, 'pending', 'enqueued', 'enqueue', w.attempt, NULL, NULL, NULL, NULL, w.enqueued_at, NULL
    FROM written w
    WHERE w.enqueued_at IS NOT NULL
    UNION ALL
    SELECT w.place, w.transition_id, w.task_uuid, w.moves_id + 1, w.step_uuid, 'enqueued', 'in_progress', 'claim', w.attempt, w.worker_uuid, NULL, NULL, NULL,
        w.claimed_at, NULL
    FROM written w
    WHERE w.claimed_at IS NOT NULL
    UNION ALL
    SELECT a.place, 0, a.task_uuid, a.moves_id, a.step_uuid, 'pending', 'enqueued', 'enqueue', a.attempts, NULL, NULL, NULL, NULL, a.enqueued_at, NULL
    FROM active a
    WHERE a.unwritten IN (1, 3) AND a.enqueued_at >= a.since
    UNION ALL
    SELECT a.place, 0, a.task_uuid, a.moves_id + 1, a.step_uuid, 'enqueued', 'in_progress', 'claim', a.attempts, a.worker_uuid, NULL, NULL, NULL,
        a.last_attempted_at, NULL
    FROM active a
    WHERE a.unwritten IN (2, 3)
    UNION ALL
    SELECT f.place, t.transition_id, t.task_uuid, t.transition_id, NULL, t.from_state, t.to_state, t.event, NULL, NULL, t.actor,
        t.reason, t.detail, t.created_at, NULL
    FROM followed f
    CROSS JOIN LATERAL (
        SELECT * FROM tasker.task_transitions t
        WHERE t.task_uuid = f.task_uuid AND t.transition_id > f.task_after
        ORDER BY t.transition_id
        LIMIT $6
    ) t
)
SELECT m.place, m.row_id, clock_timestamp() AS read_at, m.transition_id AS id, m.task_uuid, m.step_uuid, m.from_state AS "from", m.to_state AS "to", m.event,
    m.attempt, m.worker_uuid, coalesce(m.actor, '') AS actor, coalesce(left(m.reason, 500), '') AS reason,
    CASE WHEN pg_column_size(m.detail) <= 32768 THEN m.detail ELSE tasker.omission(m.detail,
        format('/v1/tasks/%s', m.task_uuid) || coalesce(format('/workflow_steps/%s', m.step_uuid), '') || '/transitions') END AS detail,
    m.created_at, m.operation_uuid
FROM moves m
ORDER BY m.place, m.created_at, m.step_uuid IS NULL, m.transition_id;
