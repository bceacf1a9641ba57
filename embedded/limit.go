package embedded

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
)

// Limits returns a page of the limits, by namespace, kind and name, and reports whether there are more.
func (e *Engine) Limits(ctx context.Context, f tasker.LimitFilter) ([]tasker.Limit, bool, error) {
	return e.engine.Limits(ctx, f)
}

// Limit returns a limit with the keys for which most steps wait, and who has their places. The error is
// NotFound when there is none.
func (e *Engine) Limit(ctx context.Context, ref tasker.LimitRef) (tasker.LimitDetail, error) {
	return e.engine.Limit(ctx, ref)
}

// SetLimit sets a limit, or changes it. It holds for what is handed out from then on, in every server.
func (e *Engine) SetLimit(ctx context.Context, ref tasker.LimitRef, v tasker.LimitValue, actor, reason string) (tasker.Limit, error) {
	return e.engine.SetLimit(ctx, ref, v, engine.LimitChange{Actor: actor, Reason: reason})
}

// DeleteLimit removes a limit. The error is a Conflict when templates give it to their steps.
func (e *Engine) DeleteLimit(ctx context.Context, ref tasker.LimitRef, actor, reason string) error {
	return e.engine.DeleteLimit(ctx, ref, engine.LimitChange{Actor: actor, Reason: reason})
}
