package postgres

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

const selectWeights = `
SELECT namespace, weight, set_by, set_at
FROM tasker.namespaces
WHERE $2::text[] IS NULL OR namespace = ANY ($2)
ORDER BY namespace
LIMIT $1`

// NamespaceWeights returns the custom namespace weights that the caller may see.
func (db *DB) NamespaceWeights(ctx context.Context) ([]tasker.NamespaceWeight, error) {
	return db.weights(ctx, access.ScopeOf(ctx).List())
}

func (db *DB) weights(ctx context.Context, namespaces []string) ([]tasker.NamespaceWeight, error) {
	list, err := collect[tasker.NamespaceWeight](ctx, db.pool, selectWeights, tasker.MaxNamespaceWeights, namespaces)
	return list, wrap(err, "list namespace weights")
}

// Concurrent calls may exceed the limit by a few weights.
const setWeight = `
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
SELECT namespace, weight, set_by, set_at FROM done`

// SetNamespaceWeight sets the weight of a namespace in claims. All servers apply it within a second.
// It returns a Conflict if too many namespaces have a weight.
func (db *DB) SetNamespaceWeight(ctx context.Context, namespace string, weight float64, actor string) (tasker.NamespaceWeight, error) {
	full := tasker.Errorf(tasker.Conflict, "%d namespaces have a weight of their own, which is the limit; delete some", tasker.MaxNamespaceWeights)
	return required[tasker.NamespaceWeight](ctx, db.pool, full, "set the weight of a namespace", setWeight, namespace, weight, actor, tasker.MaxNamespaceWeights)
}

const deleteWeight = `
WITH gone AS (DELETE FROM tasker.namespaces WHERE namespace = $1 RETURNING namespace, weight, set_by, set_at),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT $2, 'namespace.unweighted', namespace, jsonb_build_object('was', weight) FROM gone
)
SELECT namespace, weight, set_by, set_at FROM gone`

// DeleteNamespaceWeight resets a namespace to weight 1. It returns NotFound if the namespace has no
// custom weight.
func (db *DB) DeleteNamespaceWeight(ctx context.Context, namespace, actor string) error {
	missing := tasker.Errorf(tasker.NotFound, "namespace %q has no weight of its own", namespace)
	_, err := required[tasker.NamespaceWeight](ctx, db.pool, missing, "delete the weight of a namespace", deleteWeight, namespace, actor)
	return err
}
