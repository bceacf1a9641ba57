package embedded

import (
	"context"

	"tasker.example/tasker"
)

// NamespaceWeights returns the namespaces with an explicit weight.
func (e *Engine) NamespaceWeights(ctx context.Context) ([]tasker.NamespaceWeight, error) {
	return e.engine.NamespaceWeights(ctx)
}

// SetNamespaceWeight sets the relative share of a namespace in claims from several namespaces: with
// 3 it gets three steps for each step of a namespace with 1. All servers apply it within a second.
func (e *Engine) SetNamespaceWeight(ctx context.Context, namespace string, weight float64, actor string) (tasker.NamespaceWeight, error) {
	return e.engine.SetNamespaceWeight(ctx, namespace, weight, actor)
}

// DeleteNamespaceWeight resets the weight of a namespace to 1. It returns NotFound if no weight
// is set.
func (e *Engine) DeleteNamespaceWeight(ctx context.Context, namespace, actor string) error {
	return e.engine.DeleteNamespaceWeight(ctx, namespace, actor)
}
