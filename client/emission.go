package client

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

// Emissions lists the deliveries of events to sinks.
func (c *Client) Emissions(ctx context.Context, f tasker.EmissionFilter) (apiv1.EmissionList, error) {
	return call(ctx, c, endpoint.ListEmissions, f, none)
}

// Emission returns an event and its deliveries.
func (c *Client) Emission(ctx context.Context, event tasker.ID) (apiv1.EmittedEvent, error) {
	return call(ctx, c, endpoint.GetEmission, none, none, event)
}

// ReEmit delivers events again.
func (c *Client) ReEmit(ctx context.Context, r apiv1.ReEmit) (apiv1.ReEmitted, error) {
	return call(ctx, c, endpoint.ReEmit, none, r)
}

// Sinks lists the sinks and their states.
func (c *Client) Sinks(ctx context.Context) ([]tasker.SinkState, error) {
	return call(ctx, c, endpoint.ListSinks, none, none)
}

// Audit lists the audit log.
func (c *Client) Audit(ctx context.Context, q apiv1.AuditQuery) (apiv1.AuditList, error) {
	return call(ctx, c, endpoint.ListAudit, q, none)
}
