-- name: allTasks
-- Statements of this file select the ids of a page of tasks: $1 limit, $2 offset.
SELECT t.task_uuid
FROM tasker.tasks t
WHERE true /* conditions */
ORDER BY t.task_uuid DESC
LIMIT $1 OFFSET $2;

-- name: tasksByState
-- BETWEEN makes the planner read the range of the state in its index, newest task first.
SELECT t.task_uuid
FROM tasker.tasks t
WHERE t.state BETWEEN $3 AND $3 /* conditions */
ORDER BY t.state, t.task_uuid DESC
LIMIT $1 OFFSET $2;

-- name: tasksByPhase
SELECT t.task_uuid
FROM tasker.tasks t
WHERE t.phase BETWEEN $3 AND $3 /* conditions */
ORDER BY t.phase, t.task_uuid DESC
LIMIT $1 OFFSET $2;

-- name: tasksOfTemplates
-- $3 namespaces or NULL for all, $4 name of the templates or ''. Merges the newest tasks of each
-- template.
SELECT l.task_uuid
FROM tasker.task_templates m
CROSS JOIN LATERAL (
    SELECT t.task_uuid
    FROM tasker.tasks t
    WHERE t.template_uuid BETWEEN m.template_uuid AND m.template_uuid /* conditions */
    ORDER BY t.template_uuid, t.task_uuid DESC
    LIMIT $1::bigint + $2::bigint
) l
WHERE ($3::text[] IS NULL OR m.namespace = ANY ($3)) AND ($4 = '' OR m.name = $4)
ORDER BY l.task_uuid DESC
LIMIT $1 OFFSET $2;

-- name: childTasks
SELECT t.task_uuid
FROM tasker.tasks t
WHERE t.parent_task_uuid = $3 /* conditions */
ORDER BY t.task_uuid DESC
LIMIT $1 OFFSET $2;

-- name: dueTasks
-- $3 namespaces or NULL for all, $4 time before which the tasks are due or NULL, $5 whether they are
-- overdue. Reads one index range per namespace, earliest due time first.
SELECT l.task_uuid
FROM (
    SELECT unnest($3::text[]) AS namespace
    UNION ALL
    SELECT DISTINCT n.namespace FROM tasker.task_templates n WHERE $3 IS NULL
) m
CROSS JOIN LATERAL (
    SELECT d.task_uuid, d.due_at
    FROM tasker.deadlines d
    WHERE d.namespace = m.namespace AND d.ended_at IS NULL AND d.step_uuid = '00000000-0000-0000-0000-000000000000'
      AND d.due_at < least($4::timestamptz, CASE WHEN $5::bool THEN now() END) /* conditions */
    ORDER BY d.due_at, d.task_uuid
    LIMIT $1::bigint + $2::bigint
) l
ORDER BY l.due_at, l.task_uuid
LIMIT $1 OFFSET $2;

-- name: tasksByKey
-- $3 namespaces or NULL for all, $4 idempotency key.
SELECT l.task_uuid
FROM (
    SELECT unnest($3::text[]) AS namespace
    UNION ALL
    SELECT DISTINCT n.namespace FROM tasker.task_templates n WHERE $3 IS NULL
) m
CROSS JOIN LATERAL (
    SELECT t.task_uuid FROM tasker.tasks t WHERE t.namespace = m.namespace AND t.idempotency_key = $4 /* conditions */
) l
ORDER BY l.task_uuid DESC
LIMIT $1 OFFSET $2;

-- name: tasksByText
-- $3 namespaces or NULL for all, $4 name of an attribute, whose value is added in Go. NULLS LAST makes
-- the planner use the index of the attribute.
SELECT l.task_uuid
FROM (
    SELECT unnest($3::text[]) AS namespace
    UNION ALL
    SELECT DISTINCT n.namespace FROM tasker.task_templates n WHERE $3 IS NULL
) m
CROSS JOIN LATERAL (
    SELECT a.task_uuid
    FROM tasker.task_attributes a
    WHERE a.namespace = m.namespace AND a.name = $4 AND a.text_value IS NOT NULL /* conditions */
    ORDER BY a.text_value DESC, a.task_uuid DESC NULLS LAST
    LIMIT $1::bigint + $2::bigint
) l
ORDER BY l.task_uuid DESC
LIMIT $1 OFFSET $2;

-- name: tasksByNumber
-- tasksByText for an attribute that is a number. The largest comes first.
SELECT l.task_uuid
FROM (
    SELECT unnest($3::text[]) AS namespace
    UNION ALL
    SELECT DISTINCT n.namespace FROM tasker.task_templates n WHERE $3 IS NULL
) m
CROSS JOIN LATERAL (
    SELECT a.task_uuid, a.number_value AS found_by
    FROM tasker.task_attributes a
    WHERE a.namespace = m.namespace AND a.name = $4 AND a.number_value IS NOT NULL /* conditions */
    ORDER BY a.number_value DESC, a.task_uuid DESC NULLS LAST
    LIMIT $1::bigint + $2::bigint
) l
ORDER BY l.found_by DESC, l.task_uuid DESC
LIMIT $1 OFFSET $2;

-- name: tasksByTime
-- tasksByText for an attribute that is a time. The latest comes first.
SELECT l.task_uuid
FROM (
    SELECT unnest($3::text[]) AS namespace
    UNION ALL
    SELECT DISTINCT n.namespace FROM tasker.task_templates n WHERE $3 IS NULL
) m
CROSS JOIN LATERAL (
    SELECT a.task_uuid, a.time_value AS found_by
    FROM tasker.task_attributes a
    WHERE a.namespace = m.namespace AND a.name = $4 AND a.time_value IS NOT NULL /* conditions */
    ORDER BY a.time_value DESC, a.task_uuid DESC NULLS LAST
    LIMIT $1::bigint + $2::bigint
) l
ORDER BY l.found_by DESC, l.task_uuid DESC
LIMIT $1 OFFSET $2;

-- name: tasksByCorrelation
-- $3 namespaces or NULL for all, $4 correlation id, $5 the same as the id of a task or NULL: a task that
-- was created without a correlation id uses its own id and has no attribute.
SELECT l.task_uuid
FROM (
    SELECT unnest($3::text[]) AS namespace
    UNION ALL
    SELECT DISTINCT n.namespace FROM tasker.task_templates n WHERE $3 IS NULL
) m
CROSS JOIN LATERAL (
    (
        SELECT a.task_uuid
        FROM tasker.task_attributes a
        WHERE a.namespace = m.namespace AND a.name = 'correlation_id' AND a.text_value = $4 /* conditions */
        ORDER BY a.text_value DESC, a.task_uuid DESC NULLS LAST
        LIMIT $1::bigint + $2::bigint
    ) UNION ALL
    SELECT t.task_uuid
    FROM tasker.tasks t
    WHERE t.namespace = m.namespace AND t.task_uuid = $5 AND t.correlation_id = $4 /* tasks */
) l
ORDER BY l.task_uuid DESC
LIMIT $1 OFFSET $2;

-- name: countTasksInState
SELECT count(*) FROM (
    SELECT FROM tasker.tasks t WHERE t.state BETWEEN $1 AND $1 ORDER BY t.state, t.task_uuid DESC LIMIT $2
) x;

-- name: sortTagsByRarity
-- Sorts the tags $1 by how many tasks in the namespaces $3 (NULL for all) have them, counted up to $2.
SELECT u.tag
FROM unnest($1::text[]) WITH ORDINALITY AS u (tag, place)
CROSS JOIN LATERAL (
    SELECT count(*) AS tasks
    FROM (
        SELECT
        FROM (
            SELECT unnest($3::text[]) AS namespace
            UNION ALL
            SELECT DISTINCT n.namespace FROM tasker.task_templates n WHERE $3 IS NULL
        ) m
        CROSS JOIN LATERAL (
            SELECT FROM tasker.task_attributes a
            WHERE a.namespace = m.namespace AND a.name = 'tag' AND a.text_value = u.tag
            LIMIT $2::bigint
        ) a
        LIMIT $2::bigint
    ) x
) c
ORDER BY c.tasks, u.place;
