package engine

import (
	"context"

	"tasker.example/tasker"
)

// NamespaceWeights returns the namespaces whose claim weights differ from the default.
func (e *Engine) NamespaceWeights(ctx context.Context) ([]tasker.NamespaceWeight, error) {
	return e.db.NamespaceWeights(ctx)
}

// SetNamespaceWeight sets the claim weight of a namespace. The weight takes effect within a second.
func (e *Engine) SetNamespaceWeight(ctx context.Context, namespace string, weight float64, actor string) (tasker.NamespaceWeight, error) {
	if err := (tasker.NamespaceWeight{Namespace: namespace, Weight: weight}).Check(); err != nil {
		return tasker.NamespaceWeight{}, err
	}
	return e.db.SetNamespaceWeight(ctx, namespace, weight, actor)
}

// DeleteNamespaceWeight resets the claim weight of a namespace to the default, which is 1. It
// returns NotFound if no weight is set.
func (e *Engine) DeleteNamespaceWeight(ctx context.Context, namespace, actor string) error {
	return e.db.DeleteNamespaceWeight(ctx, namespace, actor)
}
