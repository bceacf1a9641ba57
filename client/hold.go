package client

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

// BeginHold creates a hold. It returns a Conflict with the id of the other hold in its details if
// the scope is already held.
func (c *Client) BeginHold(ctx context.Context, b apiv1.BeginHold) (tasker.Hold, error) {
	return call(ctx, c, endpoint.BeginHold, none, b)
}

// Holds lists holds.
func (c *Client) Holds(ctx context.Context, f tasker.HoldFilter) (apiv1.HoldList, error) {
	return call(ctx, c, endpoint.ListHolds, f, none)
}

// Hold returns a hold with its history.
func (c *Client) Hold(ctx context.Context, hold tasker.ID) (tasker.HoldDetail, error) {
	return call(ctx, c, endpoint.GetHold, none, none, hold)
}

// ProbeHold releases one step of a hold to test whether it succeeds.
func (c *Client) ProbeHold(ctx context.Context, hold tasker.ID, p apiv1.ProbeHold) (tasker.Hold, error) {
	return call(ctx, c, endpoint.ProbeHold, none, p, hold)
}

// ExtendHold changes the end, and optionally the owner, of a hold.
func (c *Client) ExtendHold(ctx context.Context, hold tasker.ID, e apiv1.ExtendHold) (tasker.Hold, error) {
	return call(ctx, c, endpoint.ExtendHold, none, e, hold)
}

// ReleaseHold starts to release the steps of a hold in waves.
func (c *Client) ReleaseHold(ctx context.Context, hold tasker.ID, r apiv1.ReleaseHold) (tasker.Hold, error) {
	return call(ctx, c, endpoint.ReleaseHold, none, r, hold)
}

// Limits lists limits.
func (c *Client) Limits(ctx context.Context, f tasker.LimitFilter) (apiv1.LimitList, error) {
	return call(ctx, c, endpoint.ListLimits, f, none)
}

// SetLimit creates or changes a limit. It applies as soon as the call returns.
func (c *Client) SetLimit(ctx context.Context, s apiv1.SetLimit) (apiv1.Limit, error) {
	return call(ctx, c, endpoint.SetLimit, none, s)
}

// DeleteLimit deletes a limit. It returns a Conflict if templates assign it to their steps.
func (c *Client) DeleteLimit(ctx context.Context, ref tasker.LimitRef, reason, by string) error {
	q := apiv1.DeleteLimitQuery{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, Reason: reason, By: by}
	_, err := call(ctx, c, endpoint.DeleteLimit, q, none)
	return err
}
