package client

import (
	"context"
	"encoding/json"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

// Steps lists the steps of a task with their readiness.
func (c *Client) Steps(ctx context.Context, task tasker.ID) ([]tasker.Step, error) {
	return call(ctx, c, endpoint.ListSteps, none, none, task)
}

// Step returns one step of a task.
func (c *Client) Step(ctx context.Context, task, step tasker.ID) (tasker.Step, error) {
	return c.StepNamed(ctx, task, step.String())
}

// StepNamed returns a step by its name, such as refund[17] for an item.
func (c *Client) StepNamed(ctx context.Context, task tasker.ID, name string) (tasker.Step, error) {
	return call(ctx, c, endpoint.GetStep, none, none, task, name)
}

// StepItems lists the items of a map step, which is identified by name or UUID.
func (c *Client) StepItems(ctx context.Context, task tasker.ID, step string, f tasker.MapItemFilter) (apiv1.StepItemList, error) {
	return call(ctx, c, endpoint.ListStepItems, f, none, task, step)
}

// ItemResults returns a page of the results of a map step, starting at ordinal from. The step is
// identified by name or UUID. It returns NotFound if the step has no items.
func (c *Client) ItemResults(ctx context.Context, task tasker.ID, step string, from int) (apiv1.ItemResults, error) {
	return call(ctx, c, endpoint.GetItemResults, apiv1.ItemResultQuery{From: from}, none, task, step)
}

// TaskContext returns the context of a task as its steps receive it.
func (c *Client) TaskContext(ctx context.Context, task tasker.ID) (json.RawMessage, error) {
	return call(ctx, c, endpoint.GetTaskContext, none, none, task)
}

// StepResult returns the result of a step as its dependents receive it. It returns NotFound if
// there is none.
func (c *Client) StepResult(ctx context.Context, task, step tasker.ID) (json.RawMessage, error) {
	return call(ctx, c, endpoint.GetStepResult, none, none, task, step)
}

// ActOnStep applies an operator action to a step and returns the step. The task continues
// automatically. It returns a Conflict if the state of the step does not allow the action.
// Automatic retries of the call apply the action only once.
func (c *Client) ActOnStep(ctx context.Context, task, step tasker.ID, a apiv1.StepAction) (tasker.Step, error) {
	return c.ActOnStepNamed(ctx, task, step.String(), a)
}

// ActOnStepNamed is like ActOnStep for a step name, such as refund[17] for an item.
func (c *Client) ActOnStepNamed(ctx context.Context, task tasker.ID, name string, a apiv1.StepAction) (tasker.Step, error) {
	return call(ctx, c, endpoint.OperateStep, none, a, task, name)
}

// CompleteStep reports the outcome of an external step. Repeating the same outcome succeeds; a
// different one is a Conflict.
func (c *Client) CompleteStep(ctx context.Context, task, step tasker.ID, o apiv1.Completion) (tasker.Step, error) {
	return c.CompleteStepNamed(ctx, task, step.String(), o)
}

// CompleteStepNamed is like CompleteStep for a step name.
func (c *Client) CompleteStepNamed(ctx context.Context, task tasker.ID, name string, o apiv1.Completion) (tasker.Step, error) {
	return call(ctx, c, endpoint.CompleteExternalStep, none, o, task, name)
}

// Inbox lists waiting human steps, earliest due first.
func (c *Client) Inbox(ctx context.Context, q apiv1.InboxQuery) (apiv1.Inbox, error) {
	return call(ctx, c, endpoint.ListInbox, q, none)
}

// HumanStep returns a human step with its form and its history.
func (c *Client) HumanStep(ctx context.Context, task tasker.ID, step string) (tasker.HumanStepDetail, error) {
	return call(ctx, c, endpoint.GetAssignee, none, none, task, step)
}

// AssignStep changes the assignee of an external step, which is identified by name or UUID. It
// returns a Conflict if the step is not waiting.
func (c *Client) AssignStep(ctx context.Context, task tasker.ID, step string, a apiv1.AssignStep) (tasker.HumanStep, error) {
	return call(ctx, c, endpoint.AssignStep, none, a, task, step)
}

// CreateAnswerLink creates a link for the assignee of an external step to answer it once without
// signing in. The step is identified by name or UUID. It returns a Conflict if the step is not
// waiting or has no assignee. The token cannot be retrieved later.
func (c *Client) CreateAnswerLink(ctx context.Context, task tasker.ID, step string, l apiv1.CreateAnswerLink) (apiv1.NewAnswerLink, error) {
	return call(ctx, c, endpoint.CreateAnswerLink, none, l, task, step)
}

// AnswerLinks lists the answer links of a step, newest first.
func (c *Client) AnswerLinks(ctx context.Context, task tasker.ID, step string) (apiv1.AnswerLinks, error) {
	return call(ctx, c, endpoint.ListAnswerLinks, none, none, task, step)
}

// RevokeAnswerLink revokes an answer link. It returns a Conflict if the link was used.
func (c *Client) RevokeAnswerLink(ctx context.Context, task tasker.ID, step string, link tasker.ID) (tasker.AnswerLink, error) {
	return call(ctx, c, endpoint.RevokeAnswerLink, none, none, task, step, link)
}
