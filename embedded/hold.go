package embedded

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/hold"
)

// BeginHold creates a hold, which is effective when it returns. It returns a Conflict if the
// scope is already held. Probes, releases and the end of a hold require Run in some process.
func (e *Engine) BeginHold(ctx context.Context, n tasker.NewHold) (tasker.Hold, error) {
	return e.holds.Begin(ctx, n)
}

// Holds returns holds that match a filter, newest first, and reports whether more follow. Limit
// has the same default and maximum as in InvestigationQueue.
func (e *Engine) Holds(ctx context.Context, f tasker.HoldFilter) (list []tasker.Hold, more bool, err error) {
	f.Limit = clampLimit(f.Limit)
	return e.holds.List(ctx, f)
}

// Hold returns a hold with its history. It returns NotFound if the hold does not exist.
func (e *Engine) Hold(ctx context.Context, id tasker.ID) (tasker.HoldDetail, error) {
	return e.holds.Detail(ctx, id)
}

// ProbeHold releases one step of an active hold to test whether it succeeds.
func (e *Engine) ProbeHold(ctx context.Context, id tasker.ID, actor, reason string) (tasker.Hold, error) {
	return e.holds.Probe(ctx, id, hold.Change{Actor: actor, Reason: reason})
}

// ExtendHold changes the end, and optionally the owner, of an active hold.
func (e *Engine) ExtendHold(ctx context.Context, id tasker.ID, x tasker.HoldExtension, actor, reason string) (tasker.Hold, error) {
	return e.holds.Extend(ctx, id, x, hold.Change{Actor: actor, Reason: reason})
}

// ReleaseHold starts to release the steps of a hold. Nil waves mean 1, 10 and 100 steps, then the
// rest; empty waves release all steps at once.
func (e *Engine) ReleaseHold(ctx context.Context, id tasker.ID, waves []int, actor, reason string) (tasker.Hold, error) {
	return e.holds.Release(ctx, id, waves, hold.Change{Actor: actor, Reason: reason})
}
