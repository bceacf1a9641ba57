package client

import (
	"context"
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// WhoAmI returns who the server takes the caller for, and what they may do.
func (c *Client) WhoAmI(ctx context.Context) (apiv1.Identity, error) {
	var answer apiv1.Identity
	err := c.get(ctx, &answer, nil, "v1", "whoami")
	return answer, err
}

// A KeyQuery selects and pages API keys, the newest first.
type KeyQuery struct {
	Search  string // a name, or how a token begins; empty means any
	Revoked bool   // also those that are revoked
	Page
}

// Keys lists API keys.
func (c *Client) Keys(ctx context.Context, q KeyQuery) (apiv1.KeyList, error) {
	query := q.values()
	setText(query, "search", q.Search)
	if q.Revoked {
		query.Set("revoked", "true")
	}
	var answer apiv1.KeyList
	err := c.get(ctx, &answer, query, "v1", "keys")
	return answer, err
}

// CreateKey creates an API key. The answer has its token, which cannot be had again.
func (c *Client) CreateKey(ctx context.Context, k apiv1.CreateKey) (apiv1.CreatedKey, error) {
	var answer apiv1.CreatedKey
	err := c.do(ctx, request{method: http.MethodPost, path: []string{"v1", "keys"}, body: k}, &answer)
	return answer, err
}

// RotateKey gives an API key a new token. The one before stays valid for r.GraceSeconds.
func (c *Client) RotateKey(ctx context.Context, key tasker.ID, r apiv1.RotateKey) (apiv1.CreatedKey, error) {
	var answer apiv1.CreatedKey
	err := c.do(ctx, request{method: http.MethodPost, path: []string{"v1", "keys", key.String(), "rotate"}, body: r}, &answer)
	return answer, err
}

// RevokeKey ends an API key: within five seconds no server takes it any more.
func (c *Client) RevokeKey(ctx context.Context, key tasker.ID) (apiv1.Key, error) {
	var answer apiv1.Key
	err := c.do(ctx, request{method: http.MethodDelete, path: []string{"v1", "keys", key.String()}, repeatable: true}, &answer)
	return answer, err
}
