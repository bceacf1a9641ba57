-- name: selectWeights
SELECT namespace, weight, set_by, set_at
FROM tasker.namespaces
WHERE $2::text[] IS NULL OR namespace = ANY ($2)
ORDER BY namespace
LIMIT $1;

-- name: setWeight
-- Concurrent calls may exceed the limit by a few weights.
WITH was AS MATERIALIZED (SELECT weight FROM tasker.namespaces WHERE namespace = $1 FOR NO KEY UPDATE),
done AS (
    INSERT INTO tasker.namespaces AS n (namespace, weight, set_by)
    SELECT $1, $2, $3
    WHERE EXISTS (SELECT FROM was) OR (SELECT count(*) FROM (SELECT FROM tasker.namespaces LIMIT $4) x) < $4
    ON CONFLICT (namespace) DO UPDATE SET weight = excluded.weight, set_by = excluded.set_by, set_at = clock_timestamp()
    RETURNING n.*
),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT $3, 'namespace.weighted', namespace, jsonb_build_object('weight', weight, 'was', (SELECT weight FROM was)) FROM done
)
SELECT namespace, weight, set_by, set_at FROM done;

-- name: deleteWeight
WITH gone AS (DELETE FROM tasker.namespaces WHERE namespace = $1 RETURNING namespace, weight, set_by, set_at),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT $2, 'namespace.unweighted', namespace, jsonb_build_object('was', weight) FROM gone
)
SELECT namespace, weight, set_by, set_at FROM gone;
