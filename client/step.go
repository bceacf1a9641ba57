package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
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

// StepNamed is Step for the step of the task that has a name, such as refund[17] of an item.
func (c *Client) StepNamed(ctx context.Context, task tasker.ID, name string) (apiv1.Step, error) {
	return get[apiv1.Step](ctx, c, nil, "v1", "tasks", task.String(), "workflow_steps", name)
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
	setNumber(query, "from", q.From)
	setNumber(query, "limit", q.Limit)
	return get[apiv1.StepItemList](ctx, c, query, "v1", "tasks", task.String(), "workflow_steps", step, "items")
}

// ItemResults returns results of the items of a step of type map, which is named by its name or its
// UUID: those from an ordinal on that fit into an answer. The error is NotFound when it has no items.
func (c *Client) ItemResults(ctx context.Context, task tasker.ID, step string, from int) (apiv1.ItemResults, error) {
	query := url.Values{}
	if from > 0 {
		query.Set("from", strconv.Itoa(from))
	}
	return get[apiv1.ItemResults](ctx, c, query, "v1", "tasks", task.String(), "results", step, "items")
}

// TaskContext returns the context of a task, as steps are given it.
func (c *Client) TaskContext(ctx context.Context, task tasker.ID) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, nil, "v1", "tasks", task.String(), "context")
}

// StepResult returns the result of a step as later steps receive it. The error is
// NotFound when the step has none.
func (c *Client) StepResult(ctx context.Context, task, step tasker.ID) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, nil, "v1", "tasks", task.String(), "results", step.String())
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
	return call[apiv1.Step](ctx, c, request{
		method: http.MethodPatch, path: []string{"v1", "tasks", task.String(), "workflow_steps", name}, body: a,
		key: tasker.NewID().String(), repeatable: true,
	})
}

// CompleteStep tells the outcome of a step of type external. The same outcome
// may be told again; another one is a Conflict.
func (c *Client) CompleteStep(ctx context.Context, task, step tasker.ID, o apiv1.Completion) (apiv1.Step, error) {
	return c.CompleteStepNamed(ctx, task, step.String(), o)
}

// CompleteStepNamed is CompleteStep for the step of the task that has a name.
func (c *Client) CompleteStepNamed(ctx context.Context, task tasker.ID, name string, o apiv1.Completion) (apiv1.Step, error) {
	return call[apiv1.Step](ctx, c, request{
		method: http.MethodPost, body: o, repeatable: true,
		path: []string{"v1", "tasks", task.String(), "workflow_steps", name, "completion"},
	})
}

// An InboxQuery selects and pages what waits for people.
type InboxQuery struct {
	Mine       bool     // what waits for the caller, or a group of the caller
	Assignees  []string // or for any of these
	Unassigned bool     // or for nobody in particular
	Namespace  string   // empty means any
	Template   string   // empty means any
	DueBefore  *time.Time
	Overdue    bool
	After      string // the NextAfter of the page before
	Limit      int    // 0 means the server's default
}

// Inbox lists what waits for people, what is due first before the rest.
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

// HumanStep returns who is to answer an external step, which is named by its name or its UUID,
// what an answer looks like, and who changed that.
func (c *Client) HumanStep(ctx context.Context, task tasker.ID, step string) (apiv1.HumanStepDetail, error) {
	return get[apiv1.HumanStepDetail](ctx, c, nil, "v1", "tasks", task.String(), "workflow_steps", step, "assignee")
}

// AssignStep says who is to answer an external step, which is named by its name or its UUID. It is
// a Conflict when the step does not wait for an answer.
func (c *Client) AssignStep(ctx context.Context, task tasker.ID, step string, a apiv1.AssignStep) (apiv1.HumanStep, error) {
	return call[apiv1.HumanStep](ctx, c, request{
		method: http.MethodPut, body: a, repeatable: true, path: []string{"v1", "tasks", task.String(), "workflow_steps", step, "assignee"},
	})
}

// CreateAnswerLink makes a link by which the assignee of an external step answers it, once and
// without signing in. The step is named by its name or its UUID; it is a Conflict when it does not
// wait for an answer, or nobody in particular is to answer it. The token is shown this once.
func (c *Client) CreateAnswerLink(ctx context.Context, task tasker.ID, step string, l apiv1.CreateAnswerLink) (apiv1.NewAnswerLink, error) {
	return call[apiv1.NewAnswerLink](ctx, c, request{method: http.MethodPost, body: l, path: []string{"v1", "tasks", task.String(), "workflow_steps", step, "answer_links"}})
}

// AnswerLinks lists the answer links of a step, newest first.
func (c *Client) AnswerLinks(ctx context.Context, task tasker.ID, step string) (apiv1.AnswerLinks, error) {
	return get[apiv1.AnswerLinks](ctx, c, nil, "v1", "tasks", task.String(), "workflow_steps", step, "answer_links")
}

// RevokeAnswerLink makes an answer link worthless. It is a Conflict when it was used.
func (c *Client) RevokeAnswerLink(ctx context.Context, task tasker.ID, step string, link tasker.ID) (apiv1.AnswerLink, error) {
	return call[apiv1.AnswerLink](ctx, c, request{
		method: http.MethodDelete, repeatable: true, path: []string{"v1", "tasks", task.String(), "workflow_steps", step, "answer_links", link.String()},
	})
}
