-- name: nameAttributes
-- Also locks existing rows, so that concurrent registrations see each other.
INSERT INTO tasker.attribute_names AS n (namespace, name, type)
SELECT $1, u.name, u.type FROM unnest($2::text[], $3::text[]) AS u (name, type)
ORDER BY u.name
ON CONFLICT (namespace, name) DO UPDATE SET type = n.type;

-- name: otherTypes
-- Selects the attributes that have another type, each with the newest template that declares it.
SELECT n.name, n.type, coalesce(o.template, '') AS template
FROM unnest($2::text[], $3::text[]) AS u (name, type)
JOIN tasker.attribute_names n ON n.namespace = $1 AND n.name = u.name AND n.type <> u.type
LEFT JOIN LATERAL (
    SELECT m.name || ' ' || m.version AS template
    FROM tasker.task_templates m
    WHERE m.namespace = $1 AND u.name = ANY (m.attributes) AND m.template_uuid <> $4
    ORDER BY m.created_at DESC LIMIT 1
) o ON true
ORDER BY n.name;

-- name: widenAttribute
UPDATE tasker.attribute_names SET type = $3 WHERE namespace = $1 AND name = $2;

-- name: selectAttributes
-- Omits names that templates no longer declare.
SELECT n.namespace, n.name, n.type, o.templates
FROM tasker.attribute_names n
CROSS JOIN LATERAL (
    SELECT array_agg(DISTINCT m.name ORDER BY m.name) AS templates
    FROM tasker.task_templates m
    WHERE m.namespace = n.namespace AND n.name = ANY (m.attributes)
) o
WHERE ($1 = '' OR n.namespace = $1) AND ($2::text[] IS NULL OR n.namespace = ANY ($2)) AND o.templates IS NOT NULL
ORDER BY n.namespace, n.name LIMIT $3 OFFSET $4;

-- name: typesOfAttributes
SELECT n.name, n.type
FROM tasker.attribute_names n
WHERE n.name = ANY ($3) AND ($1 = '' OR n.namespace = $1) AND ($2::text[] IS NULL OR n.namespace = ANY ($2))
GROUP BY n.name, n.type
ORDER BY n.name, n.type;
