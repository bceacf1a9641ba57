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
	for name, yes := range map[string]bool{"mine": q.Mine, "unassigned": q.Unassigned, "overdue": q.Overdue} {
		if yes {
			query.Set(name, "true")
		}
	}
	for _, name := range q.Assignees {
		query.Add("assignee", name)
	}
	setText(query, "namespace", q.Namespace)
	setText(query, "template", q.Template)
	setText(query, "after", q.After)
	if q.DueBefore != nil {
		query.Set("due_before", q.DueBefore.UTC().Format(time.RFC3339Nano))
	}
	if q.Limit > 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	var answer apiv1.Inbox
	err := c.get(ctx, &answer, query, "v1", "inbox")
	return answer, err
}

// HumanStep returns who is to answer an external step, which is named by its name or its UUID,
// what an answer looks like, and who changed that.
func (c *Client) HumanStep(ctx context.Context, task tasker.ID, step string) (apiv1.HumanStepDetail, error) {
	var answer apiv1.HumanStepDetail
	err := c.get(ctx, &answer, nil, "v1", "tasks", task.String(), "workflow_steps", step, "assignee")
	return answer, err
}

// AssignStep says who is to answer an external step, which is named by its name or its UUID. It is
// a Conflict when the step does not wait for an answer.
func (c *Client) AssignStep(ctx context.Context, task tasker.ID, step string, a apiv1.AssignStep) (apiv1.HumanStep, error) {
	var answer apiv1.HumanStep
	err := c.do(ctx, request{
		method: http.MethodPut, body: a, repeatable: true, path: []string{"v1", "tasks", task.String(), "workflow_steps", step, "assignee"},
	}, &answer)
	return answer, err
}

// CreateAnswerLink makes a link by which the assignee of an external step answers it, once and
// without signing in. The step is named by its name or its UUID; it is a Conflict when it does not
// wait for an answer, or nobody in particular is to answer it. The token is shown this once.
func (c *Client) CreateAnswerLink(ctx context.Context, task tasker.ID, step string, l apiv1.CreateAnswerLink) (apiv1.NewAnswerLink, error) {
	var answer apiv1.NewAnswerLink
	err := c.do(ctx, request{method: http.MethodPost, body: l, path: []string{"v1", "tasks", task.String(), "workflow_steps", step, "answer_links"}}, &answer)
	return answer, err
}

// AnswerLinks lists the answer links of a step, newest first.
func (c *Client) AnswerLinks(ctx context.Context, task tasker.ID, step string) (apiv1.AnswerLinks, error) {
	var answer apiv1.AnswerLinks
	err := c.get(ctx, &answer, nil, "v1", "tasks", task.String(), "workflow_steps", step, "answer_links")
	return answer, err
}

// RevokeAnswerLink makes an answer link worthless. It is a Conflict when it was used.
func (c *Client) RevokeAnswerLink(ctx context.Context, task tasker.ID, step string, link tasker.ID) (apiv1.AnswerLink, error) {
	var answer apiv1.AnswerLink
	err := c.do(ctx, request{
		method: http.MethodDelete, repeatable: true, path: []string{"v1", "tasks", task.String(), "workflow_steps", step, "answer_links", link.String()},
	}, &answer)
	return answer, err
}
