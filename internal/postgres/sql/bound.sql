-- name: lockTemplates
SELECT pg_advisory_xact_lock(hashtextextended('tasker.task_templates', 0));

-- name: countTemplates
-- Counts up to one more than each bound, using skip scans of an index.
WITH RECURSIVE spaces AS (
    (SELECT namespace FROM tasker.task_templates ORDER BY namespace LIMIT 1)
    UNION ALL
    SELECT (SELECT t.namespace FROM tasker.task_templates t WHERE t.namespace > s.namespace ORDER BY t.namespace LIMIT 1)
    FROM spaces s
    WHERE s.namespace IS NOT NULL
),
names AS (
    (SELECT name FROM tasker.task_templates WHERE namespace = $1 ORDER BY name LIMIT 1)
    UNION ALL
    SELECT (SELECT t.name FROM tasker.task_templates t WHERE t.namespace = $1 AND t.name > n.name ORDER BY t.name LIMIT 1)
    FROM names n
    WHERE n.name IS NOT NULL
)
SELECT
    (SELECT count(*) FROM (SELECT FROM spaces WHERE namespace IS NOT NULL LIMIT $4::bigint + 1) x) AS namespaces,
    (SELECT count(*) FROM (SELECT FROM names WHERE name IS NOT NULL LIMIT $5::bigint + 1) x) AS templates,
    (SELECT count(*) FROM (SELECT FROM tasker.task_templates WHERE namespace = $1 AND name = $2 LIMIT $6::bigint + 1) x) AS versions,
    NOT EXISTS (SELECT FROM tasker.task_templates WHERE namespace = $1 AND template_uuid <> $3) AS new_namespace,
    NOT EXISTS (SELECT FROM tasker.task_templates WHERE namespace = $1 AND name = $2 AND template_uuid <> $3) AS new_template;

-- name: addHandlers
WITH added AS (
    INSERT INTO tasker.template_handlers (namespace, handler) SELECT DISTINCT $1, h FROM unnest($2::text[]) AS h
    ON CONFLICT DO NOTHING
    RETURNING handler
)
SELECT count(*) FROM added;

-- name: countHandlers
SELECT count(*) FROM (SELECT FROM tasker.template_handlers WHERE namespace = $1 LIMIT $2::bigint + 1) h;

-- name: forgetHandlers
-- Removes the handlers in a namespace that templates no longer use.
DELETE FROM tasker.template_handlers h
WHERE h.namespace = $1 AND NOT EXISTS (
    SELECT FROM tasker.task_templates t
    WHERE t.namespace = $1 AND t.configuration @? format('$.steps[*] ? (@.handler.callable == %1$s || @.on_failure.compensate == %1$s)', to_json(h.handler))::jsonpath
);
