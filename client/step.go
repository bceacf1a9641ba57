package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// Steps lists the steps of a task with their readiness.
func (c *Client) Steps(ctx context.Context, task tasker.ID) ([]apiv1.Step, error) {
	return get[[]apiv1.Step](ctx, c, nil, "v1", "tasks", task.String(), "workflow_steps")
}

// Step returns one step of a task.
func (c *Client) Step(ctx context.Context, task, step tasker.ID) (apiv1.Step, error) {
	return c.StepNamed(ctx, task, step.String())
}

// StepNamed returns a step by its name, such as refund[17] for an item.
func (c *Client) StepNamed(ctx context.Context, task tasker.ID, name string) (apiv1.Step, error) {
	return get[apiv1.Step](ctx, c, nil, "v1", "tasks", task.String(), "workflow_steps", name)
}

// MapItemQuery selects and pages the items of a map step, in order.
type MapItemQuery struct {
	State tasker.StepState // empty means any
	From  int              // Next of the previous page
	Limit int              // 0 means the server's default
}

// StepItems lists the items of a map step, which is identified by name or UUID.
func (c *Client) StepItems(ctx context.Context, task tasker.ID, step string, q MapItemQuery) (apiv1.StepItemList, error) {
	query := url.Values{}
	setText(query, "state", string(q.State))
	setNumber(query, "from", q.From)
	setNumber(query, "limit", q.Limit)
	return get[apiv1.StepItemList](ctx, c, query, "v1", "tasks", task.String(), "workflow_steps", step, "items")
}

// ItemResults returns a page of the results of a map step, starting at ordinal from. The step is
// identified by name or UUID. It returns NotFound if the step has no items.
func (c *Client) ItemResults(ctx context.Context, task tasker.ID, step string, from int) (apiv1.ItemResults, error) {
	query := url.Values{}
	setNumber(query, "from", from)
	return get[apiv1.ItemResults](ctx, c, query, "v1", "tasks", task.String(), "results", step, "items")
}

// TaskContext returns the context of a task as its steps receive it.
func (c *Client) TaskContext(ctx context.Context, task tasker.ID) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, nil, "v1", "tasks", task.String(), "context")
}

// StepResult returns the result of a step as its dependents receive it. It returns NotFound if
// there is none.
func (c *Client) StepResult(ctx context.Context, task, step tasker.ID) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, nil, "v1", "tasks", task.String(), "results", step.String())
}

// ActOnStep applies an operator action to a step and returns the step. The task continues
// automatically. It returns a Conflict if the state of the step does not allow the action.
// Automatic retries of the call apply the action only once.
func (c *Client) ActOnStep(ctx context.Context, task, step tasker.ID, a apiv1.StepAction) (apiv1.Step, error) {
	return c.ActOnStepNamed(ctx, task, step.String(), a)
}

// ActOnStepNamed is like ActOnStep for a step name, such as refund[17] for an item.
func (c *Client) ActOnStepNamed(ctx context.Context, task tasker.ID, name string, a apiv1.StepAction) (apiv1.Step, error) {
	return sendKeyed[apiv1.Step](ctx, c, http.MethodPatch, a, "v1", "tasks", task.String(), "workflow_steps", name)
}

// CompleteStep reports the outcome of an external step. Repeating the same outcome succeeds; a
// different one is a Conflict.
func (c *Client) CompleteStep(ctx context.Context, task, step tasker.ID, o apiv1.Completion) (apiv1.Step, error) {
	return c.CompleteStepNamed(ctx, task, step.String(), o)
}

// CompleteStepNamed is like CompleteStep for a step name.
func (c *Client) CompleteStepNamed(ctx context.Context, task tasker.ID, name string, o apiv1.Completion) (apiv1.Step, error) {
	return sendRepeatable[apiv1.Step](ctx, c, http.MethodPost, o,
		"v1", "tasks", task.String(), "workflow_steps", name, "completion")
}

// InboxQuery selects and pages waiting human steps. Mine, Assignees and Unassigned are
// alternatives.
type InboxQuery struct {
	Mine       bool     // assigned to the caller or a group of the caller
	Assignees  []string // assigned to any of these
	Unassigned bool     // without an assignee
	Namespace  string   // empty means any
	Template   string   // empty means any
	DueBefore  *time.Time
	Overdue    bool
	After      string // NextAfter of the previous page
	Limit      int    // 0 means the server's default
}

// Inbox lists waiting human steps, earliest due first.
func (c *Client) Inbox(ctx context.Context, q InboxQuery) (apiv1.Inbox, error) {
	query := url.Values{}
	setFlag(query, "mine", q.Mine)
	setFlag(query, "unassigned", q.Unassigned)
	setFlag(query, "overdue", q.Overdue)
	for _, name := range q.Assignees {
		query.Add("assignee", name)
	}
	setText(query, "namespace", q.Namespace)
	setText(query, "template", q.Template)
	setText(query, "after", q.After)
	if q.DueBefore != nil {
		query.Set("due_before", q.DueBefore.UTC().Format(time.RFC3339Nano))
	}
	setNumber(query, "limit", q.Limit)
	return get[apiv1.Inbox](ctx, c, query, "v1", "inbox")
}

// HumanStep returns a human step with its form and its history.
func (c *Client) HumanStep(ctx context.Context, task tasker.ID, step string) (apiv1.HumanStepDetail, error) {
	return get[apiv1.HumanStepDetail](ctx, c, nil, "v1", "tasks", task.String(), "workflow_steps", step, "assignee")
}

// AssignStep changes the assignee of an external step, which is identified by name or UUID. It
// returns a Conflict if the step is not waiting.
func (c *Client) AssignStep(ctx context.Context, task tasker.ID, step string, a apiv1.AssignStep) (apiv1.HumanStep, error) {
	return sendRepeatable[apiv1.HumanStep](ctx, c, http.MethodPut, a,
		"v1", "tasks", task.String(), "workflow_steps", step, "assignee")
}

// CreateAnswerLink creates a link for the assignee of an external step to answer it once without
// signing in. The step is identified by name or UUID. It returns a Conflict if the step is not
// waiting or has no assignee. The token cannot be retrieved later.
func (c *Client) CreateAnswerLink(ctx context.Context, task tasker.ID, step string, l apiv1.CreateAnswerLink) (apiv1.NewAnswerLink, error) {
	return send[apiv1.NewAnswerLink](ctx, c, http.MethodPost, l,
		"v1", "tasks", task.String(), "workflow_steps", step, "answer_links")
}

// AnswerLinks lists the answer links of a step, newest first.
func (c *Client) AnswerLinks(ctx context.Context, task tasker.ID, step string) (apiv1.AnswerLinks, error) {
	return get[apiv1.AnswerLinks](ctx, c, nil, "v1", "tasks", task.String(), "workflow_steps", step, "answer_links")
}

// RevokeAnswerLink revokes an answer link. It returns a Conflict if the link was used.
func (c *Client) RevokeAnswerLink(ctx context.Context, task tasker.ID, step string, link tasker.ID) (apiv1.AnswerLink, error) {
	return sendRepeatable[apiv1.AnswerLink](ctx, c, http.MethodDelete, nil,
		"v1", "tasks", task.String(), "workflow_steps", step, "answer_links", link.String())
}
