package postgres

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// NamespaceWeights returns the namespaces whose weights were set, if the caller may see them.
func (db *DB) NamespaceWeights(ctx context.Context) ([]tasker.NamespaceWeight, error) {
	return db.findWeights(ctx, access.ScopeFromContext(ctx).List())
}

func (db *DB) findWeights(ctx context.Context, namespaces []string) ([]tasker.NamespaceWeight, error) {
	list, err := collect[tasker.NamespaceWeight](ctx, db.pool, statement("selectWeights"), tasker.MaxNamespaceWeights, namespaces)
	return list, wrapError(err, "list namespace weights")
}

// SetNamespaceWeight sets the weight of a namespace for claims. All servers apply it within a
// second. It returns a Conflict if too many namespaces have their own weight.
func (db *DB) SetNamespaceWeight(ctx context.Context, namespace string, weight float64, actor string) (tasker.NamespaceWeight, error) {
	full := tasker.Errorf(tasker.Conflict, "%d namespaces already have their own weight, which is the limit: "+
		"delete some weights", tasker.MaxNamespaceWeights)
	return queryRequired[tasker.NamespaceWeight](ctx, db.pool, full, "set the weight of a namespace", statement("setWeight"), namespace, weight, actor, tasker.MaxNamespaceWeights)
}

// DeleteNamespaceWeight resets the weight of a namespace to 1. It returns NotFound if no weight was
// set.
func (db *DB) DeleteNamespaceWeight(ctx context.Context, namespace, actor string) error {
	missing := tasker.Errorf(tasker.NotFound, "namespace %q has no weight of its own", namespace)
	_, err := queryRequired[tasker.NamespaceWeight](ctx, db.pool, missing, "delete the weight of a namespace", statement("deleteWeight"), namespace, actor)
	return err
}
