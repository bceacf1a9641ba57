-- name: beginHumanSteps
-- A step that waits again after a reset keeps its assignee.
WITH made AS (
    INSERT INTO tasker.human_steps AS a (task_uuid, step_uuid, namespace, task_name, step_name, assignee, waiting_since, due_at)
    SELECT s.task_uuid, s.step_uuid, t.namespace, t.name, s.name, u.assignee, s.state_since, coalesce(s.wait_until, 'infinity')
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS u (task_uuid, step_uuid, assignee)
    JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
    JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
    WHERE s.state = 'pending'
    ORDER BY s.task_uuid, s.step_uuid
    ON CONFLICT (task_uuid, step_uuid) DO UPDATE
    SET waiting = true, waiting_since = excluded.waiting_since, due_at = excluded.due_at, escalated_at = NULL
    RETURNING a.*
)
SELECT a.task_uuid, a.step_uuid, a.namespace, a.task_name, a.step_name, a.assignee, a.assigned_by, a.assigned_at, a.waiting,
    a.waiting_since, nullif(a.due_at, 'infinity') AS due_at, a.escalated_at, s.reminders
FROM made a
JOIN tasker.workflow_steps s ON s.task_uuid = a.task_uuid AND s.step_uuid = a.step_uuid
ORDER BY a.task_uuid, a.step_uuid;

-- name: followHumanSteps
-- A reset step waits immediately if it was already decided to run.
UPDATE tasker.human_steps a
SET waiting = w.waits, waiting_since = CASE WHEN w.waits THEN s.state_since ELSE a.waiting_since END,
    due_at = CASE WHEN w.waits THEN coalesce(s.wait_until, 'infinity') ELSE a.due_at END, escalated_at = CASE WHEN w.waits THEN NULL ELSE a.escalated_at END
FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
CROSS JOIN LATERAL (SELECT s.state = 'pending' AND s.decide_at IS NULL AS waits) w
WHERE a.task_uuid = u.task_uuid AND a.step_uuid = u.step_uuid AND a.waiting <> w.waits;

-- name: endHumanSteps
UPDATE tasker.human_steps SET waiting = false WHERE task_uuid = ANY ($1) AND waiting;

-- name: selectHumanStep
SELECT a.task_uuid, a.step_uuid, a.namespace, a.task_name, a.step_name, a.assignee, a.assigned_by, a.assigned_at, a.waiting,
    a.waiting_since, nullif(a.due_at, 'infinity') AS due_at, a.escalated_at, s.reminders
FROM tasker.human_steps a
JOIN tasker.workflow_steps s ON s.task_uuid = a.task_uuid AND s.step_uuid = a.step_uuid
WHERE a.task_uuid = $1 AND a.step_uuid = $2;

-- name: humanStepHistory
SELECT changed_at AS at, event, actor, reason, assignee
FROM tasker.human_step_history WHERE task_uuid = $1 AND step_uuid = $2 ORDER BY change_id DESC LIMIT $3;

-- name: assign
-- Assigning a step to the same assignee adds no row to the history.
WITH step AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid, t.namespace, t.name AS task_name, s.name, s.state_since, coalesce(s.wait_until, 'infinity') AS due_at
    FROM tasker.workflow_steps s
    JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
    WHERE s.task_uuid = $1 AND s.step_uuid = $2 AND s.step_type = 'external' AND s.state = 'pending' AND s.decide_at IS NULL
),
changed AS (
    INSERT INTO tasker.human_steps AS a (task_uuid, step_uuid, namespace, task_name, step_name, assignee, assigned_by, waiting_since, due_at, escalated_at)
    SELECT s.task_uuid, s.step_uuid, s.namespace, s.task_name, s.name, $3, $4, s.state_since, s.due_at, CASE WHEN $6 = 'escalated' THEN clock_timestamp() END FROM step s
    ON CONFLICT (task_uuid, step_uuid) DO UPDATE
    SET assignee = excluded.assignee, assigned_by = excluded.assigned_by, assigned_at = clock_timestamp(), escalated_at = coalesce(excluded.escalated_at, a.escalated_at)
    WHERE a.assignee <> excluded.assignee
    RETURNING a.task_uuid, a.step_uuid, a.assignee
)
INSERT INTO tasker.human_step_history (task_uuid, step_uuid, event, actor, reason, assignee)
SELECT c.task_uuid, c.step_uuid, $6, $4, $5, c.assignee FROM changed c;

-- name: inbox
-- $1 namespaces or NULL for all, which are found by an index skip scan; $2, $3 due time (NULL if none)
-- and id of the last step of the previous page; $4 limit; filters: $5 assignees or NULL, $6 template or
-- '', $7 latest due time or NULL, $8 whether only overdue steps. One of the four branches runs, and
-- reads one range of its index per namespace and assignee.
WITH RECURSIVE found AS (
    (SELECT a.namespace FROM tasker.human_steps a WHERE $1::text[] IS NULL AND a.waiting ORDER BY a.namespace LIMIT 1)
    UNION ALL
    SELECT (
        SELECT a.namespace FROM tasker.human_steps a
        WHERE a.waiting AND a.namespace > f.namespace
        ORDER BY a.namespace
        LIMIT 1
    )
    FROM found f
    WHERE f.namespace IS NOT NULL
),
spaces AS (
    SELECT n.namespace,
        least($7::timestamptz, CASE WHEN $8::bool THEN now() END, 'infinity') - interval '1 microsecond' AS due_by
    FROM (SELECT f.namespace FROM found f WHERE f.namespace IS NOT NULL UNION ALL SELECT unnest($1::text[])) n
)
SELECT a.task_uuid, a.step_uuid, a.namespace, a.task_name, a.step_name, a.assignee, a.assigned_by, a.assigned_at, a.waiting,
    a.waiting_since, nullif(a.due_at, 'infinity') AS due_at, a.escalated_at, s.reminders
FROM (
    SELECT x.*
    FROM (
        SELECT x.*
        FROM spaces e
        CROSS JOIN LATERAL (
            SELECT a.*
            FROM tasker.human_steps a
            WHERE $5::text[] IS NULL AND $6::text = '' AND a.waiting AND a.namespace = e.namespace
              AND (a.due_at, a.step_uuid) > (coalesce($2::timestamptz, 'infinity'), $3::uuid) AND a.due_at <= e.due_by
            ORDER BY a.due_at, a.step_uuid
            LIMIT $4
        ) x
        UNION ALL
        SELECT x.*
        FROM spaces e
        CROSS JOIN LATERAL (
            SELECT a.*
            FROM tasker.human_steps a
            WHERE $5::text[] IS NULL AND $6 <> '' AND a.waiting AND a.namespace = e.namespace AND a.task_name = $6
              AND (a.due_at, a.step_uuid) > (coalesce($2::timestamptz, 'infinity'), $3::uuid) AND a.due_at <= e.due_by
            ORDER BY a.due_at, a.step_uuid
            LIMIT $4
        ) x
        UNION ALL
        SELECT x.*
        FROM spaces e
        CROSS JOIN unnest($5::text[]) AS w (assignee)
        CROSS JOIN LATERAL (
            SELECT a.*
            FROM tasker.human_steps a
            WHERE $6 = '' AND a.waiting AND a.namespace = e.namespace AND a.assignee = w.assignee
              AND (a.due_at, a.step_uuid) > (coalesce($2::timestamptz, 'infinity'), $3::uuid) AND a.due_at <= e.due_by
            ORDER BY a.due_at, a.step_uuid
            LIMIT $4
        ) x
        UNION ALL
        SELECT x.*
        FROM spaces e
        CROSS JOIN unnest($5::text[]) AS w (assignee)
        CROSS JOIN LATERAL (
            SELECT a.*
            FROM tasker.human_steps a
            WHERE $6 <> '' AND a.waiting AND a.namespace = e.namespace AND a.assignee = w.assignee AND a.task_name = $6
              AND (a.due_at, a.step_uuid) > (coalesce($2::timestamptz, 'infinity'), $3::uuid) AND a.due_at <= e.due_by
            ORDER BY a.due_at, a.step_uuid
            LIMIT $4
        ) x
    ) x
    ORDER BY x.due_at, x.step_uuid
    LIMIT $4
) a
JOIN tasker.workflow_steps s ON s.task_uuid = a.task_uuid AND s.step_uuid = a.step_uuid
WHERE s.state = 'pending'
ORDER BY a.due_at, a.step_uuid;
