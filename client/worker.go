package client

import (
	"context"
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// Workers lists the workers that the server knows.
func (c *Client) Workers(ctx context.Context, p Page) (apiv1.WorkerList, error) {
	return get[apiv1.WorkerList](ctx, c, p.values(), "v1", "workers")
}

// RegisterWorker makes a worker known.
func (c *Client) RegisterWorker(ctx context.Context, w apiv1.RegisterWorker) (apiv1.RegisteredWorker, error) {
	return call[apiv1.RegisteredWorker](ctx, c, request{method: http.MethodPost, path: []string{"v1", "workers"}, body: w})
}

// Claim takes work. It is never repeated once sent: an answer that got lost may
// have brought work, which comes back when its lease ends.
func (c *Client) Claim(ctx context.Context, worker tasker.ID, q apiv1.ClaimSteps) (apiv1.ClaimedSteps, error) {
	var answer apiv1.ClaimedSteps
	err := c.post(ctx, worker, "claims", request{body: q, wait: time.Duration(q.WaitMS) * time.Millisecond}, &answer)
	return answer, err
}

// Take takes steps that the message broker announced. It is never repeated once
// sent, as Claim is not.
func (c *Client) Take(ctx context.Context, worker tasker.ID, q apiv1.TakeSteps) (apiv1.ClaimedSteps, error) {
	var answer apiv1.ClaimedSteps
	err := c.post(ctx, worker, "take", request{body: q}, &answer)
	return answer, err
}

// Heartbeat extends leases.
func (c *Client) Heartbeat(ctx context.Context, worker tasker.ID, l apiv1.Leases) (apiv1.HeartbeatAnswer, error) {
	var answer apiv1.HeartbeatAnswer
	err := c.post(ctx, worker, "heartbeat", request{body: l, repeatable: true}, &answer)
	return answer, err
}

// Report delivers results, and takes the next work where r.Claim asks for it. The
// same results may be sent again: they count once.
func (c *Client) Report(ctx context.Context, worker tasker.ID, r apiv1.ReportResults) (apiv1.ReportAnswer, error) {
	q := request{body: r, repeatable: r.Claim == nil}
	if r.Claim != nil {
		q.wait = time.Duration(r.Claim.WaitMS) * time.Millisecond
	}
	var answer apiv1.ReportAnswer
	err := c.post(ctx, worker, "results", q, &answer)
	return answer, err
}

// Release gives work back that was not begun.
func (c *Client) Release(ctx context.Context, worker tasker.ID, l apiv1.Leases) (apiv1.Released, error) {
	var answer apiv1.Released
	err := c.post(ctx, worker, "release", request{body: l}, &answer)
	return answer, err
}

// SaveCheckpoint keeps a value for the attempts of a step that follow, in place of the one before.
func (c *Client) SaveCheckpoint(ctx context.Context, worker tasker.ID, s apiv1.SaveCheckpoint) error {
	return c.post(ctx, worker, "checkpoint", request{body: s, repeatable: true}, nil)
}

// DrainWorker has a worker get no new work: it finishes what it holds and leaves.
func (c *Client) DrainWorker(ctx context.Context, worker tasker.ID) (apiv1.Worker, error) {
	var answer apiv1.Worker
	err := c.post(ctx, worker, "drain", request{repeatable: true}, &answer)
	return answer, err
}

// Queues lists what waits for workers, of one namespace or, where that is empty, of
// all: first what no live worker takes. Limit 0 means the server's default.
func (c *Client) Queues(ctx context.Context, namespace string, limit int) ([]tasker.Queue, error) {
	query := Page{Limit: limit}.values()
	setText(query, "namespace", namespace)
	return get[[]tasker.Queue](ctx, c, query, "v1", "queues")
}

// LeaveWorker makes a worker unknown.
func (c *Client) LeaveWorker(ctx context.Context, worker tasker.ID) error {
	return c.do(ctx, request{method: http.MethodDelete, path: []string{"v1", "workers", worker.String()}, repeatable: true}, nil)
}

// post sends a request of a worker.
func (c *Client) post(ctx context.Context, worker tasker.ID, about string, r request, answer any) error {
	r.method, r.path = http.MethodPost, []string{"v1", "workers", worker.String(), about}
	return c.do(ctx, r, answer)
}

// Namespaces lists the namespaces with a weight of their own in claims of several.
func (c *Client) Namespaces(ctx context.Context) (apiv1.NamespaceList, error) {
	return get[apiv1.NamespaceList](ctx, c, nil, "v1", "namespaces")
}

// SetNamespace gives a namespace its weight.
func (c *Client) SetNamespace(ctx context.Context, namespace string, s apiv1.SetNamespace) (apiv1.Namespace, error) {
	return call[apiv1.Namespace](ctx, c, request{method: http.MethodPut, path: []string{"v1", "namespaces", namespace}, body: s, repeatable: true})
}

// DeleteNamespace has a namespace count 1 again. The error is NotFound when it does.
func (c *Client) DeleteNamespace(ctx context.Context, namespace string) error {
	return c.do(ctx, request{method: http.MethodDelete, path: []string{"v1", "namespaces", namespace}}, nil)
}
