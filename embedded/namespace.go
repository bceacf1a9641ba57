package embedded

import (
	"context"

	"tasker.example/tasker"
)

// NamespaceWeights returns the namespaces with a weight of their own in claims of several.
func (e *Engine) NamespaceWeights(ctx context.Context) ([]tasker.NamespaceWeight, error) {
	return e.engine.NamespaceWeights(ctx)
}

// SetNamespaceWeight gives a namespace its share in claims of several: with 3 it gets three steps for each
// of a namespace with 1, when both have work. All servers go by it within a second.
func (e *Engine) SetNamespaceWeight(ctx context.Context, namespace string, weight float64, actor string) (tasker.NamespaceWeight, error) {
	return e.engine.SetNamespaceWeight(ctx, namespace, weight, actor)
}

// DeleteNamespaceWeight has a namespace count 1 again. The error is NotFound when it does.
func (e *Engine) DeleteNamespaceWeight(ctx context.Context, namespace, actor string) error {
	return e.engine.DeleteNamespaceWeight(ctx, namespace, actor)
}
