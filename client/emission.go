package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// An EmissionQuery selects and pages what became of events, the newest event first.
type EmissionQuery struct {
	State  tasker.EmissionState // empty means any
	Sink   string
	Before int64 // the NextBefore of the page before; 0 for the first
	Limit  int   // 0 means the server's default
}

// Emissions lists what became of sending events to the sinks.
func (c *Client) Emissions(ctx context.Context, q EmissionQuery) (apiv1.EmissionList, error) {
	query := before(q.Before, q.Limit)
	setText(query, "state", string(q.State))
	setText(query, "sink", q.Sink)
	return get[apiv1.EmissionList](ctx, c, query, "v1", "dlq", "emissions")
}

// Emission returns one event with what became of it at each sink.
func (c *Client) Emission(ctx context.Context, event tasker.ID) (apiv1.EmittedEvent, error) {
	return get[apiv1.EmittedEvent](ctx, c, nil, "v1", "dlq", "emissions", event.String())
}

// ReEmit has events sent again.
func (c *Client) ReEmit(ctx context.Context, r apiv1.ReEmit) (apiv1.ReEmitted, error) {
	return call[apiv1.ReEmitted](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "dlq", "emissions", "re-emit"}, body: r, key: tasker.NewID().String(), repeatable: true,
	})
}

// Sinks lists how the sinks are.
func (c *Client) Sinks(ctx context.Context) ([]apiv1.Sink, error) {
	return get[[]apiv1.Sink](ctx, c, nil, "v1", "dlq", "sinks")
}

// An AuditQuery selects and pages the audit log, newest first.
type AuditQuery struct {
	Action string // empty means any
	Before int64  // the NextBefore of the page before; 0 for the first
	Limit  int    // 0 means the server's default
}

// Audit lists what happened to Tasker itself and who did it.
func (c *Client) Audit(ctx context.Context, q AuditQuery) (apiv1.AuditList, error) {
	query := before(q.Before, q.Limit)
	setText(query, "action", q.Action)
	return get[apiv1.AuditList](ctx, c, query, "v1", "audit")
}

func before(position int64, limit int) url.Values {
	query := Page{Limit: limit}.values()
	if position > 0 {
		query.Set("before", strconv.FormatInt(position, 10))
	}
	return query
}
