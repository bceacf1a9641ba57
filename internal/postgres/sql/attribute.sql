-- name: stepsToFind
-- attributes_at is null if no attribute uses the step, infinity if no evaluation is due, and
-- otherwise
-- the time when one became due.
SELECT s.task_uuid, s.step_uuid
FROM tasker.workflow_steps s
WHERE s.attributes_at < 'infinity' AND s.attributes_at <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = 'attributes' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid)
ORDER BY s.attributes_at, s.task_uuid, s.step_uuid
LIMIT $1;

-- name: tasksToFind
SELECT t.task_uuid, t.template_uuid, t.namespace, t.priority, t.correlation_id
FROM unnest($1::uuid[]) AS u (task_uuid)
JOIN tasker.tasks t ON t.task_uuid = u.task_uuid
ORDER BY t.task_uuid;

-- name: replaceAttributes
-- Writes only rows that have changed. $1 tasks, $2 reserved names; then the attributes.
WITH found AS MATERIALIZED (
    SELECT u.task_uuid, u.namespace, u.name, u.text_value, u.number_value::numeric AS number_value, u.time_value
    FROM unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::timestamptz[]) AS u (task_uuid, namespace, name, text_value, number_value, time_value)
),
gone AS (
    DELETE FROM tasker.task_attributes a
    USING unnest($1::uuid[]) AS t (task_uuid)
    WHERE a.task_uuid = t.task_uuid AND a.name <> ALL ($2) AND NOT EXISTS (SELECT FROM found f WHERE a.task_uuid = f.task_uuid AND a.name = f.name
    AND (a.text_value, a.number_value, a.time_value) IS NOT DISTINCT FROM (f.text_value, f.number_value, f.time_value))
)
INSERT INTO tasker.task_attributes (task_uuid, namespace, name, text_value, number_value, time_value)
SELECT f.task_uuid, f.namespace, f.name, f.text_value, f.number_value, f.time_value
FROM found f
WHERE NOT EXISTS (SELECT FROM tasker.task_attributes a WHERE a.task_uuid = f.task_uuid AND a.name = f.name
    AND (a.text_value, a.number_value, a.time_value) IS NOT DISTINCT FROM (f.text_value, f.number_value, f.time_value));

-- name: attributesAreFound
UPDATE tasker.workflow_steps s
SET attributes_at = CASE WHEN EXISTS (
    SELECT FROM tasker.tasks t
    JOIN unnest($3::uuid[], $4::text[]) AS n (template_uuid, name) ON n.template_uuid = t.template_uuid AND n.name = s.name
    WHERE t.task_uuid = s.task_uuid
) THEN timestamptz 'infinity' END
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
WHERE s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.attributes_at < 'infinity';

-- name: insertAttributes
INSERT INTO tasker.task_attributes (task_uuid, namespace, name, text_value, number_value, time_value)
SELECT u.task_uuid, u.namespace, u.name, u.text_value, u.number_value::numeric, u.time_value
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[]) AS u (task_uuid, namespace, name, text_value, number_value, time_value);
