package embedded

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
)

// Limits returns a page of limits, ordered by namespace, kind and name, and reports whether more
// follow.
func (e *Engine) Limits(ctx context.Context, f tasker.LimitFilter) ([]tasker.Limit, bool, error) {
	return e.engine.Limits(ctx, f)
}

// Limit returns a limit and its keys with the most waiting steps. It returns NotFound if the limit
// does not exist.
func (e *Engine) Limit(ctx context.Context, ref tasker.LimitRef) (tasker.LimitDetail, error) {
	return e.engine.Limit(ctx, ref)
}

// SetLimit creates or changes a limit. It applies to all later claims on all servers.
func (e *Engine) SetLimit(ctx context.Context, ref tasker.LimitRef, v tasker.LimitValue, actor, reason string) (tasker.Limit, error) {
	return e.engine.SetLimit(ctx, ref, v, engine.LimitChange{Actor: actor, Reason: reason})
}

// DeleteLimit deletes a limit. It returns a Conflict if templates assign it to their steps.
func (e *Engine) DeleteLimit(ctx context.Context, ref tasker.LimitRef, actor, reason string) error {
	return e.engine.DeleteLimit(ctx, ref, engine.LimitChange{Actor: actor, Reason: reason})
}
