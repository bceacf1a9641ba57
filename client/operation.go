package client

import (
	"context"
	"net/http"
	"net/url"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// PlanOperation creates an operation with a frozen selection and changes no step. Requests with
// the same key create one operation; an empty key is replaced by a new one. It returns a Conflict,
// with the other operation in its details, if another operation has some of the same steps.
func (c *Client) PlanOperation(ctx context.Context, p apiv1.PlanOperation, key string) (apiv1.Operation, error) {
	if key == "" {
		key = tasker.NewID().String()
	}
	return call[apiv1.Operation](ctx, c, request{method: http.MethodPost, path: []string{"v1", "operations"}, body: p, key: key, repeatable: true})
}

// OperationQuery selects and pages operations, newest first.
type OperationQuery struct {
	State     tasker.OperationState // empty means any
	Namespace string                // of at least one item; empty means any
	Page
}

// Operations lists operations.
func (c *Client) Operations(ctx context.Context, q OperationQuery) (apiv1.OperationList, error) {
	query := q.toValues()
	setText(query, "state", string(q.State))
	setText(query, "namespace", q.Namespace)
	return get[apiv1.OperationList](ctx, c, query, "v1", "operations")
}

// Operation returns an operation with its counts.
func (c *Client) Operation(ctx context.Context, operation tasker.ID) (apiv1.Operation, error) {
	return get[apiv1.Operation](ctx, c, nil, "v1", "operations", operation.String())
}

// ItemQuery selects and pages the items of an operation, in order.
type ItemQuery struct {
	State tasker.ItemState // empty means any
	After int              // Next of the previous page
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

// StartOperation starts a planned operation. It returns a Conflict if the digest differs or the
// plan has expired.
func (c *Client) StartOperation(ctx context.Context, operation tasker.ID, s apiv1.StartOperation) (apiv1.Operation, error) {
	return c.changeOperation(ctx, operation, "start", s)
}

// PauseOperation stops releasing items. Released items continue.
func (c *Client) PauseOperation(ctx context.Context, operation tasker.ID, by string) (apiv1.Operation, error) {
	return c.changeOperation(ctx, operation, "pause", apiv1.ChangeOperation{By: by})
}

// ResumeOperation resumes a paused operation.
func (c *Client) ResumeOperation(ctx context.Context, operation tasker.ID, r apiv1.ResumeOperation) (apiv1.Operation, error) {
	return c.changeOperation(ctx, operation, "resume", r)
}

// AbortOperation ends an operation without releasing its remaining items.
func (c *Client) AbortOperation(ctx context.Context, operation tasker.ID, by string) (apiv1.Operation, error) {
	return c.changeOperation(ctx, operation, "abort", apiv1.ChangeOperation{By: by})
}

func (c *Client) changeOperation(ctx context.Context, operation tasker.ID, verb string, body any) (apiv1.Operation, error) {
	return sendRepeatable[apiv1.Operation](ctx, c, http.MethodPost, body, "v1", "operations", operation.String(), verb)
}

// DryRunOperation predicts the effect of an operation, one part at a time, without changing
// anything. Next of the response starts the next part.
func (c *Client) DryRunOperation(ctx context.Context, operation tasker.ID, r apiv1.DryRunOperation) (apiv1.OperationDryRun, error) {
	return sendRepeatable[apiv1.OperationDryRun](ctx, c, http.MethodPost, r,
		"v1", "operations", operation.String(), "dry-run")
}
