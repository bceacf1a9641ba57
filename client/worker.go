package client

import (
	"context"
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// Workers lists the registered workers.
func (c *Client) Workers(ctx context.Context, p Page) (apiv1.WorkerList, error) {
	return get[apiv1.WorkerList](ctx, c, p.toValues(), "v1", "workers")
}

// RegisterWorker registers a worker.
func (c *Client) RegisterWorker(ctx context.Context, w apiv1.RegisterWorker) (apiv1.RegisteredWorker, error) {
	return send[apiv1.RegisteredWorker](ctx, c, http.MethodPost, w, "v1", "workers")
}

// Claim claims steps. It is not retried once sent: steps of a lost response return to the queue
// when their leases expire.
func (c *Client) Claim(ctx context.Context, worker tasker.ID, q apiv1.ClaimSteps) (apiv1.ClaimedSteps, error) {
	return post[apiv1.ClaimedSteps](ctx, c, worker, "claims", request{body: q, wait: time.Duration(q.WaitMS) * time.Millisecond})
}

// Take claims announced steps. Like Claim, it is not retried once sent.
func (c *Client) Take(ctx context.Context, worker tasker.ID, q apiv1.TakeSteps) (apiv1.ClaimedSteps, error) {
	return post[apiv1.ClaimedSteps](ctx, c, worker, "take", request{body: q})
}

// Heartbeat extends leases and returns which of them are lost.
func (c *Client) Heartbeat(ctx context.Context, worker tasker.ID, l apiv1.Leases) (apiv1.HeartbeatAnswer, error) {
	return post[apiv1.HeartbeatAnswer](ctx, c, worker, "heartbeat", request{body: l, repeatable: true})
}

// Report reports results and claims further steps if r.Claim is set. Repeated results are applied
// once.
func (c *Client) Report(ctx context.Context, worker tasker.ID, r apiv1.ReportResults) (apiv1.ReportAnswer, error) {
	q := request{body: r, repeatable: r.Claim == nil}
	if r.Claim != nil {
		q.wait = time.Duration(r.Claim.WaitMS) * time.Millisecond
	}
	return post[apiv1.ReportAnswer](ctx, c, worker, "results", q)
}

// Release returns claimed steps to their queue without using an attempt.
func (c *Client) Release(ctx context.Context, worker tasker.ID, l apiv1.Leases) (apiv1.Released, error) {
	return post[apiv1.Released](ctx, c, worker, "release", request{body: l})
}

// SaveCheckpoint replaces the checkpoint of a step.
func (c *Client) SaveCheckpoint(ctx context.Context, worker tasker.ID, s apiv1.SaveCheckpoint) error {
	path := []string{"v1", "workers", worker.String(), "checkpoint"}
	return c.do(ctx, request{method: http.MethodPost, path: path, body: s, repeatable: true}, nil)
}

// DrainWorker drains a worker: it claims no more steps, finishes its current ones and leaves.
func (c *Client) DrainWorker(ctx context.Context, worker tasker.ID) (apiv1.Worker, error) {
	return post[apiv1.Worker](ctx, c, worker, "drain", request{repeatable: true})
}

// Queues lists queues with waiting steps of one namespace, or of all if it is empty, unserved
// ones first. Limit 0 means the server's default.
func (c *Client) Queues(ctx context.Context, namespace string, limit int) ([]tasker.Queue, error) {
	query := Page{Limit: limit}.toValues()
	setText(query, "namespace", namespace)
	return get[[]tasker.Queue](ctx, c, query, "v1", "queues")
}

// LeaveWorker unregisters a worker.
func (c *Client) LeaveWorker(ctx context.Context, worker tasker.ID) error {
	return c.do(ctx, request{method: http.MethodDelete, path: []string{"v1", "workers", worker.String()}, repeatable: true}, nil)
}

// post sends a request on behalf of a worker.
func post[T any](ctx context.Context, c *Client, worker tasker.ID, action string, r request) (T, error) {
	r.method, r.path = http.MethodPost, []string{"v1", "workers", worker.String(), action}
	return call[T](ctx, c, r)
}

// Namespaces lists the namespaces with an explicit weight.
func (c *Client) Namespaces(ctx context.Context) (apiv1.NamespaceList, error) {
	return get[apiv1.NamespaceList](ctx, c, nil, "v1", "namespaces")
}

// SetNamespace sets the weight of a namespace.
func (c *Client) SetNamespace(ctx context.Context, namespace string, s apiv1.SetNamespace) (apiv1.Namespace, error) {
	return sendRepeatable[apiv1.Namespace](ctx, c, http.MethodPut, s, "v1", "namespaces", namespace)
}

// DeleteNamespace resets the weight of a namespace to 1. It returns NotFound if no weight is set.
func (c *Client) DeleteNamespace(ctx context.Context, namespace string) error {
	return c.do(ctx, request{method: http.MethodDelete, path: []string{"v1", "namespaces", namespace}}, nil)
}
