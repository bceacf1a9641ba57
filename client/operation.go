package client

import (
	"context"
	"net/http"
	"net/url"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// PlanOperation freezes what an operation selects; nothing is done until it is started. The
// key recognises the request when it is sent again, also by another program; empty means
// one of its own. It is a Conflict, with the other operation in its details, when that holds
// some of the steps.
func (c *Client) PlanOperation(ctx context.Context, p apiv1.PlanOperation, key string) (apiv1.Operation, error) {
	if key == "" {
		key = tasker.NewID().String()
	}
	return call[apiv1.Operation](ctx, c, request{method: http.MethodPost, path: []string{"v1", "operations"}, body: p, key: key, repeatable: true})
}

// An OperationQuery selects and pages operations, newest first.
type OperationQuery struct {
	State     tasker.OperationState // empty means any
	Namespace string                // of one item at least; empty means any
	Page
}

// Operations lists operations.
func (c *Client) Operations(ctx context.Context, q OperationQuery) (apiv1.OperationList, error) {
	query := q.values()
	setText(query, "state", string(q.State))
	setText(query, "namespace", q.Namespace)
	return get[apiv1.OperationList](ctx, c, query, "v1", "operations")
}

// Operation returns an operation with the numbers of its items.
func (c *Client) Operation(ctx context.Context, operation tasker.ID) (apiv1.Operation, error) {
	return get[apiv1.Operation](ctx, c, nil, "v1", "operations", operation.String())
}

// An ItemQuery selects and pages the items of an operation, in their order.
type ItemQuery struct {
	State tasker.ItemState // empty means any
	After int              // the Next of the page before
	Limit int              // 0 means the server's default
}

// OperationItems lists the items of an operation.
func (c *Client) OperationItems(ctx context.Context, operation tasker.ID, q ItemQuery) (apiv1.OperationItemList, error) {
	query := url.Values{}
	setText(query, "state", string(q.State))
	setNumber(query, "after", q.After)
	setNumber(query, "limit", q.Limit)
	return get[apiv1.OperationItemList](ctx, c, query, "v1", "operations", operation.String(), "items")
}

// StartOperation starts an operation whose plan has the digest. It is a Conflict when the
// plan is another one, or has expired.
func (c *Client) StartOperation(ctx context.Context, operation tasker.ID, s apiv1.StartOperation) (apiv1.Operation, error) {
	return c.changeOperation(ctx, operation, "start", s)
}

// PauseOperation stops the release of items; those that are released go on.
func (c *Client) PauseOperation(ctx context.Context, operation tasker.ID, by string) (apiv1.Operation, error) {
	return c.changeOperation(ctx, operation, "pause", apiv1.ChangeOperation{By: by})
}

// ResumeOperation resumes an operation that is paused.
func (c *Client) ResumeOperation(ctx context.Context, operation tasker.ID, r apiv1.ResumeOperation) (apiv1.Operation, error) {
	return c.changeOperation(ctx, operation, "resume", r)
}

// AbortOperation ends an operation: what is not released never is.
func (c *Client) AbortOperation(ctx context.Context, operation tasker.ID, by string) (apiv1.Operation, error) {
	return c.changeOperation(ctx, operation, "abort", apiv1.ChangeOperation{By: by})
}

func (c *Client) changeOperation(ctx context.Context, operation tasker.ID, verb string, body any) (apiv1.Operation, error) {
	return call[apiv1.Operation](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "operations", operation.String(), verb}, body: body, repeatable: true,
	})
}

// DryRunOperation does what an operation would do and rolls it back, a part at a time:
// Next says where the next part begins. It changes nothing.
func (c *Client) DryRunOperation(ctx context.Context, operation tasker.ID, r apiv1.DryRunOperation) (apiv1.OperationDryRun, error) {
	return call[apiv1.OperationDryRun](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "operations", operation.String(), "dry-run"}, body: r, repeatable: true,
	})
}
