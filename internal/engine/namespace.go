package engine

import (
	"context"

	"tasker.example/tasker"
)

// NamespaceWeights returns the namespaces with a weight of their own in claims of several.
func (e *Engine) NamespaceWeights(ctx context.Context) ([]tasker.NamespaceWeight, error) {
	return e.db.NamespaceWeights(ctx)
}

// SetNamespaceWeight sets the claim weight of a namespace, effective within a second.
func (e *Engine) SetNamespaceWeight(ctx context.Context, namespace string, weight float64, actor string) (tasker.NamespaceWeight, error) {
	if err := (tasker.NamespaceWeight{Namespace: namespace, Weight: weight}).Check(); err != nil {
		return tasker.NamespaceWeight{}, err
	}
	return e.db.SetNamespaceWeight(ctx, namespace, weight, actor)
}

// DeleteNamespaceWeight has a namespace count 1 again. The error is NotFound when it does.
func (e *Engine) DeleteNamespaceWeight(ctx context.Context, namespace, actor string) error {
	return e.db.DeleteNamespaceWeight(ctx, namespace, actor)
}
