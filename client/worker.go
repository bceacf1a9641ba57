package client

import (
	"context"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

// Workers lists the registered workers.
func (c *Client) Workers(ctx context.Context, p apiv1.Page) (apiv1.WorkerList, error) {
	return call(ctx, c, endpoint.ListWorkers, p, none)
}

// RegisterWorker registers a worker.
func (c *Client) RegisterWorker(ctx context.Context, w apiv1.RegisterWorker) (apiv1.RegisteredWorker, error) {
	return call(ctx, c, endpoint.RegisterWorker, none, w)
}

// Claim claims steps. It is not retried once sent: steps of a lost response return to the queue
// when their leases expire.
func (c *Client) Claim(ctx context.Context, worker tasker.ID, q apiv1.ClaimSteps) (apiv1.ClaimedSteps, error) {
	r := newRequest(endpoint.ClaimSteps, none, q, worker)
	r.repeatable, r.wait = false, time.Duration(q.WaitMS)*time.Millisecond
	return send[apiv1.ClaimedSteps](ctx, c, r)
}

// Take claims announced steps. Like Claim, it is not retried once sent.
func (c *Client) Take(ctx context.Context, worker tasker.ID, q apiv1.TakeSteps) (apiv1.ClaimedSteps, error) {
	r := newRequest(endpoint.TakeSteps, none, q, worker)
	r.repeatable = false
	return send[apiv1.ClaimedSteps](ctx, c, r)
}

// Heartbeat extends leases and returns which of them are lost.
func (c *Client) Heartbeat(ctx context.Context, worker tasker.ID, l apiv1.Leases) (apiv1.HeartbeatAnswer, error) {
	return call(ctx, c, endpoint.Heartbeat, none, l, worker)
}

// Report reports results and claims further steps if r.Claim is set. Repeated results are applied
// once.
func (c *Client) Report(ctx context.Context, worker tasker.ID, r apiv1.ReportResults) (apiv1.ReportAnswer, error) {
	q := newRequest(endpoint.ReportResults, none, r, worker)
	if r.Claim != nil {
		q.repeatable, q.wait = false, time.Duration(r.Claim.WaitMS)*time.Millisecond
	}
	return send[apiv1.ReportAnswer](ctx, c, q)
}

// Release returns claimed steps to their queue without using an attempt.
func (c *Client) Release(ctx context.Context, worker tasker.ID, l apiv1.Leases) (apiv1.Released, error) {
	return call(ctx, c, endpoint.ReleaseSteps, none, l, worker)
}

// SaveCheckpoint replaces the checkpoint of a step.
func (c *Client) SaveCheckpoint(ctx context.Context, worker tasker.ID, s apiv1.SaveCheckpoint) error {
	_, err := call(ctx, c, endpoint.SaveCheckpoint, none, s, worker)
	return err
}

// DrainWorker drains a worker: it claims no more steps, finishes its current ones and leaves.
func (c *Client) DrainWorker(ctx context.Context, worker tasker.ID) (tasker.Worker, error) {
	return call(ctx, c, endpoint.DrainWorker, none, none, worker)
}

// Queues lists queues with waiting steps of one namespace, or of all if it is empty, unserved
// ones first. Limit 0 means the server's default.
func (c *Client) Queues(ctx context.Context, namespace string, limit int) ([]tasker.Queue, error) {
	return call(ctx, c, endpoint.ListQueues, apiv1.QueueQuery{Namespace: namespace, Limit: limit}, none)
}

// LeaveWorker unregisters a worker.
func (c *Client) LeaveWorker(ctx context.Context, worker tasker.ID) error {
	_, err := call(ctx, c, endpoint.Leave, none, none, worker)
	return err
}

// Namespaces lists the namespaces with an explicit weight.
func (c *Client) Namespaces(ctx context.Context) (apiv1.NamespaceList, error) {
	return call(ctx, c, endpoint.ListNamespaces, none, none)
}

// SetNamespace sets the weight of a namespace.
func (c *Client) SetNamespace(ctx context.Context, namespace string, s apiv1.SetNamespace) (tasker.NamespaceWeight, error) {
	return call(ctx, c, endpoint.SetNamespace, none, s, namespace)
}

// DeleteNamespace resets the weight of a namespace to 1. It returns NotFound if no weight is set.
func (c *Client) DeleteNamespace(ctx context.Context, namespace string) error {
	_, err := call(ctx, c, endpoint.DeleteNamespace, none, none, namespace)
	return err
}
