-- name: uniqueTask
SELECT task_uuid FROM tasker.unique_tasks WHERE namespace = $1 AND name = $2 AND unique_key = $3;

-- name: lockUniqueKeys
-- Makes transactions with the same key wait for each other, so that each finds the task of the
-- previous
-- one.
SELECT pg_advisory_xact_lock(k.lock)
FROM (
    SELECT DISTINCT hashtextextended(u.namespace || chr(31) || u.name || chr(31) || u.unique_key, 7) AS lock
    FROM unnest($1::text[], $2::text[], $3::text[]) AS u (namespace, name, unique_key)
    ORDER BY 1
) k;

-- name: selectUnique
SELECT x.task_uuid, u.place::int AS place
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS u (namespace, name, unique_key, place)
JOIN tasker.unique_tasks x ON x.namespace = u.namespace AND x.name = u.name AND x.unique_key = u.unique_key
WHERE x.task_uuid <> ALL ($4);

-- name: freeUniqueKeys
DELETE FROM tasker.unique_tasks WHERE task_uuid = ANY ($1);
