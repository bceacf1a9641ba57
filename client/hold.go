package client

import (
	"context"
	"net/http"
	"net/url"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// BeginHold has the enqueued steps of a scope held. It is a Conflict, with the id of the
// other hold in its details, when the same scope is held already.
func (c *Client) BeginHold(ctx context.Context, b apiv1.BeginHold) (apiv1.Hold, error) {
	return call[apiv1.Hold](ctx, c, request{method: http.MethodPost, path: []string{"v1", "holds"}, body: b})
}

// A HoldQuery selects and pages holds, the newest first.
type HoldQuery struct {
	Namespace string // empty means any
	Open      bool   // only those that have not ended
	Before    string // the NextBefore of the page before
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

// Hold returns a hold with what happened to it.
func (c *Client) Hold(ctx context.Context, hold tasker.ID) (apiv1.HoldDetail, error) {
	return get[apiv1.HoldDetail](ctx, c, nil, "v1", "holds", hold.String())
}

// ProbeHold lets one step of a hold go, to see whether it succeeds.
func (c *Client) ProbeHold(ctx context.Context, hold tasker.ID, p apiv1.ProbeHold) (apiv1.Hold, error) {
	return c.changeHold(ctx, hold, "probe", p)
}

// ExtendHold moves the end of a hold, and may hand it to another owner.
func (c *Client) ExtendHold(ctx context.Context, hold tasker.ID, e apiv1.ExtendHold) (apiv1.Hold, error) {
	return c.changeHold(ctx, hold, "extend", e)
}

// ReleaseHold begins to let the steps of a hold go, in waves.
func (c *Client) ReleaseHold(ctx context.Context, hold tasker.ID, r apiv1.ReleaseHold) (apiv1.Hold, error) {
	return c.changeHold(ctx, hold, "release", r)
}

func (c *Client) changeHold(ctx context.Context, hold tasker.ID, verb string, body any) (apiv1.Hold, error) {
	return call[apiv1.Hold](ctx, c, request{method: http.MethodPost, path: []string{"v1", "holds", hold.String(), verb}, body: body})
}

// A LimitQuery pages limits, by namespace, kind and name.
type LimitQuery struct {
	Namespace string // empty means any
	Kind      string // likewise
	Name      string // likewise
	Keys      bool   // each with its keys and who has their places; at most 10 then
	After     string // the NextAfter of the page before
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

// SetLimit sets a limit, or changes it. It holds from the answer on.
func (c *Client) SetLimit(ctx context.Context, s apiv1.SetLimit) (apiv1.Limit, error) {
	return call[apiv1.Limit](ctx, c, request{method: http.MethodPut, path: []string{"v1", "limits"}, body: s, repeatable: true})
}

// DeleteLimit removes a limit. It is a Conflict when templates give it to their steps.
func (c *Client) DeleteLimit(ctx context.Context, ref tasker.LimitRef, reason, by string) error {
	query := url.Values{}
	setText(query, "kind", string(ref.Kind))
	setText(query, "namespace", ref.Namespace)
	setText(query, "name", ref.Name)
	setText(query, "reason", reason)
	setText(query, "by", by)
	return c.do(ctx, request{method: http.MethodDelete, path: []string{"v1", "limits"}, query: query}, nil)
}
