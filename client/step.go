package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// Steps lists the steps of a task with their readiness.
func (c *Client) Steps(ctx context.Context, task tasker.ID) ([]apiv1.Step, error) {
	var answer []apiv1.Step
	err := c.get(ctx, &answer, nil, "v1", "tasks", task.String(), "workflow_steps")
	return answer, err
}

// Step returns one step of a task.
func (c *Client) Step(ctx context.Context, task, step tasker.ID) (apiv1.Step, error) {
	return c.StepNamed(ctx, task, step.String())
}

// StepNamed is Step for the step of the task that has a name, such as refund[17] of an item.
func (c *Client) StepNamed(ctx context.Context, task tasker.ID, name string) (apiv1.Step, error) {
	var answer apiv1.Step
	err := c.get(ctx, &answer, nil, "v1", "tasks", task.String(), "workflow_steps", name)
	return answer, err
}

// A MapItemQuery selects and pages the items of a map step, in their order.
type MapItemQuery struct {
	State tasker.StepState // empty means any
	From  int              // the Next of the page before
	Limit int              // 0 means the server's default
}

// StepItems lists the items of a step of type map, which is named by its name or its UUID.
func (c *Client) StepItems(ctx context.Context, task tasker.ID, step string, q MapItemQuery) (apiv1.StepItemList, error) {
	query := url.Values{}
	setText(query, "state", string(q.State))
	if q.From > 0 {
		query.Set("from", strconv.Itoa(q.From))
	}
	if q.Limit > 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	var answer apiv1.StepItemList
	err := c.get(ctx, &answer, query, "v1", "tasks", task.String(), "workflow_steps", step, "items")
	return answer, err
}

// ItemResults returns results of the items of a step of type map, which is named by its name or its
// UUID: those from an ordinal on that fit into an answer. The error is NotFound when it has no items.
func (c *Client) ItemResults(ctx context.Context, task tasker.ID, step string, from int) (apiv1.ItemResults, error) {
	query := url.Values{}
	if from > 0 {
		query.Set("from", strconv.Itoa(from))
	}
	var answer apiv1.ItemResults
	err := c.get(ctx, &answer, query, "v1", "tasks", task.String(), "results", step, "items")
	return answer, err
}

// TaskContext returns the context of a task, as steps are given it.
func (c *Client) TaskContext(ctx context.Context, task tasker.ID) (json.RawMessage, error) {
	var answer json.RawMessage
	err := c.get(ctx, &answer, nil, "v1", "tasks", task.String(), "context")
	return answer, err
}

// StepResult returns the result of a step as later steps receive it. The error is
// NotFound when the step has none.
func (c *Client) StepResult(ctx context.Context, task, step tasker.ID) (json.RawMessage, error) {
	var answer json.RawMessage
	err := c.get(ctx, &answer, nil, "v1", "tasks", task.String(), "results", step.String())
	return answer, err
}

// ActOnStep does one of the operator's actions to a step and returns the step as
// it is then; the task goes on by itself. It is a Conflict when the step's state
// does not allow the action. Each call has a key of its own, so that a request that
// reaches the server twice is applied once.
func (c *Client) ActOnStep(ctx context.Context, task, step tasker.ID, a apiv1.StepAction) (apiv1.Step, error) {
	return c.ActOnStepNamed(ctx, task, step.String(), a)
}

// ActOnStepNamed is ActOnStep for the step of the task that has a name, such as refund[17] of
// an item.
func (c *Client) ActOnStepNamed(ctx context.Context, task tasker.ID, name string, a apiv1.StepAction) (apiv1.Step, error) {
	var answer apiv1.Step
	err := c.do(ctx, request{
		method: http.MethodPatch, path: []string{"v1", "tasks", task.String(), "workflow_steps", name}, body: a,
		key: tasker.NewID().String(), repeatable: true,
	}, &answer)
	return answer, err
}

// CompleteStep tells the outcome of a step of type external. The same outcome
// may be told again; another one is a Conflict.
func (c *Client) CompleteStep(ctx context.Context, task, step tasker.ID, o apiv1.Completion) (apiv1.Step, error) {
	return c.CompleteStepNamed(ctx, task, step.String(), o)
}

// CompleteStepNamed is CompleteStep for the step of the task that has a name.
func (c *Client) CompleteStepNamed(ctx context.Context, task tasker.ID, name string, o apiv1.Completion) (apiv1.Step, error) {
	var answer apiv1.Step
	err := c.do(ctx, request{
		method: http.MethodPost, body: o, repeatable: true,
		path: []string{"v1", "tasks", task.String(), "workflow_steps", name, "completion"},
	}, &answer)
	return answer, err
}
