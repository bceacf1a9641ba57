package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// EmissionQuery selects and pages deliveries, newest event first.
type EmissionQuery struct {
	State  tasker.EmissionState // empty means any
	Sink   string
	Topic  string // empty means any
	Before int64  // NextBefore of the previous page; 0 for the first page
	Limit  int    // 0 means the server's default
}

// Emissions lists the deliveries of events to sinks.
func (c *Client) Emissions(ctx context.Context, q EmissionQuery) (apiv1.EmissionList, error) {
	query := pageQuery(q.Before, q.Limit)
	setText(query, "state", string(q.State))
	setText(query, "sink", q.Sink)
	setText(query, "topic", q.Topic)
	return get[apiv1.EmissionList](ctx, c, query, "v1", "dlq", "emissions")
}

// Emission returns an event and its deliveries.
func (c *Client) Emission(ctx context.Context, event tasker.ID) (apiv1.EmittedEvent, error) {
	return get[apiv1.EmittedEvent](ctx, c, nil, "v1", "dlq", "emissions", event.String())
}

// ReEmit delivers events again.
func (c *Client) ReEmit(ctx context.Context, r apiv1.ReEmit) (apiv1.ReEmitted, error) {
	return sendKeyed[apiv1.ReEmitted](ctx, c, http.MethodPost, r, "v1", "dlq", "emissions", "re-emit")
}

// Sinks lists the sinks and their states.
func (c *Client) Sinks(ctx context.Context) ([]apiv1.Sink, error) {
	return get[[]apiv1.Sink](ctx, c, nil, "v1", "dlq", "sinks")
}

// AuditQuery selects and pages the audit log, newest first.
type AuditQuery struct {
	Action string // empty means any
	Before int64  // NextBefore of the previous page; 0 for the first page
	Limit  int    // 0 means the server's default
}

// Audit lists the audit log.
func (c *Client) Audit(ctx context.Context, q AuditQuery) (apiv1.AuditList, error) {
	query := pageQuery(q.Before, q.Limit)
	setText(query, "action", q.Action)
	return get[apiv1.AuditList](ctx, c, query, "v1", "audit")
}

func pageQuery(position int64, limit int) url.Values {
	query := Page{Limit: limit}.toValues()
	if position > 0 {
		query.Set("before", strconv.FormatInt(position, 10))
	}
	return query
}
