package client

import (
	"context"
	"net/http"
	"net/url"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// BeginHold creates a hold. It returns a Conflict with the id of the other hold in its details if
// the scope is already held.
func (c *Client) BeginHold(ctx context.Context, b apiv1.BeginHold) (apiv1.Hold, error) {
	return send[apiv1.Hold](ctx, c, http.MethodPost, b, "v1", "holds")
}

// HoldQuery selects and pages holds, newest first.
type HoldQuery struct {
	Namespace string // empty means any
	Open      bool   // exclude ended holds
	Before    string // NextBefore of the previous page
	Limit     int    // 0 means the server's default
}

// Holds lists holds.
func (c *Client) Holds(ctx context.Context, q HoldQuery) (apiv1.HoldList, error) {
	query := url.Values{}
	setText(query, "namespace", q.Namespace)
	setText(query, "before", q.Before)
	setFlag(query, "open", q.Open)
	setNumber(query, "limit", q.Limit)
	return get[apiv1.HoldList](ctx, c, query, "v1", "holds")
}

// Hold returns a hold with its history.
func (c *Client) Hold(ctx context.Context, hold tasker.ID) (apiv1.HoldDetail, error) {
	return get[apiv1.HoldDetail](ctx, c, nil, "v1", "holds", hold.String())
}

// ProbeHold releases one step of a hold to test whether it succeeds.
func (c *Client) ProbeHold(ctx context.Context, hold tasker.ID, p apiv1.ProbeHold) (apiv1.Hold, error) {
	return c.changeHold(ctx, hold, "probe", p)
}

// ExtendHold changes the end, and optionally the owner, of a hold.
func (c *Client) ExtendHold(ctx context.Context, hold tasker.ID, e apiv1.ExtendHold) (apiv1.Hold, error) {
	return c.changeHold(ctx, hold, "extend", e)
}

// ReleaseHold starts to release the steps of a hold in waves.
func (c *Client) ReleaseHold(ctx context.Context, hold tasker.ID, r apiv1.ReleaseHold) (apiv1.Hold, error) {
	return c.changeHold(ctx, hold, "release", r)
}

func (c *Client) changeHold(ctx context.Context, hold tasker.ID, verb string, body any) (apiv1.Hold, error) {
	return send[apiv1.Hold](ctx, c, http.MethodPost, body, "v1", "holds", hold.String(), verb)
}

// LimitQuery selects and pages limits, ordered by namespace, kind and name.
type LimitQuery struct {
	Namespace string // empty means any
	Kind      string // empty means any
	Name      string // empty means any
	Keys      bool   // include keys and holders; at most 10 limits per page
	After     string // NextAfter of the previous page
	Limit     int    // 0 means the server's default
}

// Limits lists limits.
func (c *Client) Limits(ctx context.Context, q LimitQuery) (apiv1.LimitList, error) {
	query := url.Values{}
	setText(query, "namespace", q.Namespace)
	setText(query, "kind", q.Kind)
	setText(query, "name", q.Name)
	setText(query, "after", q.After)
	setFlag(query, "keys", q.Keys)
	setNumber(query, "limit", q.Limit)
	return get[apiv1.LimitList](ctx, c, query, "v1", "limits")
}

// SetLimit creates or changes a limit. It applies as soon as the call returns.
func (c *Client) SetLimit(ctx context.Context, s apiv1.SetLimit) (apiv1.Limit, error) {
	return sendRepeatable[apiv1.Limit](ctx, c, http.MethodPut, s, "v1", "limits")
}

// DeleteLimit deletes a limit. It returns a Conflict if templates assign it to their steps.
func (c *Client) DeleteLimit(ctx context.Context, ref tasker.LimitRef, reason, by string) error {
	query := url.Values{}
	setText(query, "kind", string(ref.Kind))
	setText(query, "namespace", ref.Namespace)
	setText(query, "name", ref.Name)
	setText(query, "reason", reason)
	setText(query, "by", by)
	return c.do(ctx, request{method: http.MethodDelete, path: []string{"v1", "limits"}, query: query}, nil)
}
