package embedded

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/hold"
)

// BeginHold has the enqueued steps of a scope held from the moment it returns. The error is
// a Conflict when the same scope is held already. Holds go on, and end, while Run runs
// somewhere.
func (e *Engine) BeginHold(ctx context.Context, n tasker.NewHold) (tasker.Hold, error) {
	return e.holds.Begin(ctx, n)
}

// Holds returns the holds of a filter, newest first, and reports whether there are more.
// Limits are those of InvestigationQueue.
func (e *Engine) Holds(ctx context.Context, f tasker.HoldFilter) (list []tasker.Hold, more bool, err error) {
	f.Limit = pageLimit(f.Limit)
	return e.holds.List(ctx, f)
}

// Hold returns a hold with what happened to it. The error is NotFound when there is none.
func (e *Engine) Hold(ctx context.Context, id tasker.ID) (tasker.HoldDetail, error) {
	return e.holds.Detail(ctx, id)
}

// ProbeHold lets one step of an active hold go, to see whether it succeeds.
func (e *Engine) ProbeHold(ctx context.Context, id tasker.ID, actor, reason string) (tasker.Hold, error) {
	return e.holds.Probe(ctx, id, hold.Change{Actor: actor, Reason: reason})
}

// ExtendHold moves the end of an active hold, and may hand it to another owner.
func (e *Engine) ExtendHold(ctx context.Context, id tasker.ID, x tasker.HoldExtension, actor, reason string) (tasker.Hold, error) {
	return e.holds.Extend(ctx, id, x, hold.Change{Actor: actor, Reason: reason})
}

// ReleaseHold begins to let the steps of a hold go. Nil waves are 1, 10 and 100 steps and
// then the rest; empty ones let all go at once.
func (e *Engine) ReleaseHold(ctx context.Context, id tasker.ID, waves []int, actor, reason string) (tasker.Hold, error) {
	return e.holds.Release(ctx, id, waves, hold.Change{Actor: actor, Reason: reason})
}
