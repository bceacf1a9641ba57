package client

import (
	"cmp"
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

// PlanOperation creates an operation with a frozen selection and changes no step. Requests with
// the same key create one operation; an empty key is replaced by a new one. It returns a Conflict,
// with the other operation in its details, if another operation has some of the same steps.
func (c *Client) PlanOperation(ctx context.Context, p apiv1.PlanOperation, key string) (apiv1.Operation, error) {
	r := newRequest(endpoint.PlanOperation, none, p)
	r.key = cmp.Or(key, r.key)
	return send[apiv1.Operation](ctx, c, r)
}

// Operations lists operations.
func (c *Client) Operations(ctx context.Context, f tasker.OperationFilter) (apiv1.OperationList, error) {
	return call(ctx, c, endpoint.ListOperations, f, none)
}

// Operation returns an operation with its counts.
func (c *Client) Operation(ctx context.Context, operation tasker.ID) (apiv1.Operation, error) {
	return call(ctx, c, endpoint.GetOperation, none, none, operation)
}

// OperationItems lists the items of an operation.
func (c *Client) OperationItems(ctx context.Context, operation tasker.ID, f tasker.OperationItemFilter) (apiv1.OperationItemList, error) {
	return call(ctx, c, endpoint.ListOperationItems, f, none, operation)
}

// StartOperation starts a planned operation. It returns a Conflict if the digest differs or the
// plan has expired.
func (c *Client) StartOperation(ctx context.Context, operation tasker.ID, s apiv1.StartOperation) (apiv1.Operation, error) {
	return call(ctx, c, endpoint.StartOperation, none, s, operation)
}

// PauseOperation stops releasing items. Released items continue.
func (c *Client) PauseOperation(ctx context.Context, operation tasker.ID, by string) (apiv1.Operation, error) {
	return call(ctx, c, endpoint.PauseOperation, none, apiv1.ChangeOperation{By: by}, operation)
}

// ResumeOperation resumes a paused operation.
func (c *Client) ResumeOperation(ctx context.Context, operation tasker.ID, r apiv1.ResumeOperation) (apiv1.Operation, error) {
	return call(ctx, c, endpoint.ResumeOperation, none, r, operation)
}

// AbortOperation ends an operation without releasing its remaining items.
func (c *Client) AbortOperation(ctx context.Context, operation tasker.ID, by string) (apiv1.Operation, error) {
	return call(ctx, c, endpoint.AbortOperation, none, apiv1.ChangeOperation{By: by}, operation)
}

// DryRunOperation predicts the effect of an operation, one part at a time, without changing
// anything. Next of the response starts the next part.
func (c *Client) DryRunOperation(ctx context.Context, operation tasker.ID, r apiv1.DryRunOperation) (tasker.DryRun, error) {
	return call(ctx, c, endpoint.DryRunOperation, none, r, operation)
}
