package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

const selectWeights = `
SELECT namespace, weight, set_by, set_at
FROM tasker.namespaces
WHERE $2::text[] IS NULL OR namespace = ANY ($2)
ORDER BY namespace
LIMIT $1`

// NamespaceWeights returns the namespaces with a weight of their own that the caller may see.
func (db *DB) NamespaceWeights(ctx context.Context) ([]tasker.NamespaceWeight, error) {
	return db.weights(ctx, access.ScopeOf(ctx).List())
}

func (db *DB) weights(ctx context.Context, of []string) ([]tasker.NamespaceWeight, error) {
	list, err := collect[tasker.NamespaceWeight](ctx, db.pool, selectWeights, tasker.MaxNamespaceWeights, of)
	return list, wrap(err, "list the weights of namespaces")
}

// Those that set the first weights of namespaces at the same time may come to a few more.
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

// SetNamespaceWeight gives a namespace its weight in claims of several. Claims of all servers go
// by it within a second. The error is Conflict when too many have one.
func (db *DB) SetNamespaceWeight(ctx context.Context, namespace string, weight float64, actor string) (tasker.NamespaceWeight, error) {
	done, err := one[tasker.NamespaceWeight](ctx, db.pool, setWeight, namespace, weight, actor, tasker.MaxNamespaceWeights)
	if err != nil {
		return tasker.NamespaceWeight{}, fmt.Errorf("set the weight of a namespace: %w", err)
	}
	if done == nil {
		return tasker.NamespaceWeight{}, tasker.Errorf(tasker.Conflict, "%d namespaces have a weight of their own, which is the limit; delete some", tasker.MaxNamespaceWeights)
	}
	return *done, nil
}

const deleteWeight = `
WITH gone AS (DELETE FROM tasker.namespaces WHERE namespace = $1 RETURNING namespace, weight, set_by, set_at),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT $2, 'namespace.unweighted', namespace, jsonb_build_object('was', weight) FROM gone
)
SELECT namespace, weight, set_by, set_at FROM gone`

// DeleteNamespaceWeight has a namespace count 1 again. The error is NotFound when it does.
func (db *DB) DeleteNamespaceWeight(ctx context.Context, namespace, actor string) error {
	gone, err := one[tasker.NamespaceWeight](ctx, db.pool, deleteWeight, namespace, actor)
	if err != nil {
		return fmt.Errorf("delete the weight of a namespace: %w", err)
	}
	if gone == nil {
		return tasker.Errorf(tasker.NotFound, "namespace %q has no weight of its own", namespace)
	}
	return nil
}
