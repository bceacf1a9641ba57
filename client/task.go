package client

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// A TaskQuery selects and pages tasks, newest first.
type TaskQuery struct {
	Status         tasker.TaskState // empty means any
	Phase          tasker.TaskPhase
	Namespace      string
	Name           string
	DeadLettered   *bool
	Tags           []string // a task has all of them
	CorrelationID  string
	IdempotencyKey string
	Initiator      string
	SourceSystem   string
	Attributes     []tasker.AttributeFilter // of those that templates declare
	CreatedAfter   time.Time                // at this instant or later
	CreatedBefore  time.Time
	Parent         tasker.ID // only tasks that its steps started; zero means any
	Overdue        bool      // only open tasks whose due time is over, the longest ago first
	DueBefore      time.Time // only open tasks that are due before this instant, those that are due first before the others
	Before         string    // the NextBefore of the page before
	Page
}

// CreateTask creates a task. With an idempotency key, the same request once more
// returns the same task.
func (c *Client) CreateTask(ctx context.Context, t apiv1.CreateTask) (apiv1.Task, error) {
	return call[apiv1.Task](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "tasks"}, body: t, repeatable: t.IdempotencyKey != "",
	})
}

// CreateTasks creates all tasks of a list, at most 1,000, or none.
func (c *Client) CreateTasks(ctx context.Context, list []apiv1.CreateTask) (apiv1.CreatedTasks, error) {
	keyless := slices.ContainsFunc(list, func(t apiv1.CreateTask) bool { return t.IdempotencyKey == "" })
	return call[apiv1.CreatedTasks](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "tasks", "bulk"}, body: list, repeatable: !keyless,
	})
}

// Task returns a task with its steps.
func (c *Client) Task(ctx context.Context, task tasker.ID) (apiv1.Task, error) {
	return get[apiv1.Task](ctx, c, nil, "v1", "tasks", task.String())
}

// Tasks lists tasks without their steps, newest first.
func (c *Client) Tasks(ctx context.Context, q TaskQuery) (apiv1.TaskList, error) {
	query := q.filter(q.values())
	setText(query, "before", q.Before)
	return get[apiv1.TaskList](ctx, c, query, "v1", "tasks")
}

// CancelTasks cancels a part of the open tasks that fit a filter, or only says which are next.
// While More of the answer is true there are others: ask again.
func (c *Client) CancelTasks(ctx context.Context, q TaskQuery, r apiv1.CancelTasks) (apiv1.CancelledTasks, error) {
	return call[apiv1.CancelledTasks](ctx, c, request{method: http.MethodPost, path: []string{"v1", "tasks", "cancel"}, query: q.filter(url.Values{}), body: r, repeatable: true})
}

// filter adds what tasks are found by.
func (q TaskQuery) filter(query url.Values) url.Values {
	setText(query, "status", string(q.Status))
	setText(query, "phase", string(q.Phase))
	setText(query, "namespace", q.Namespace)
	setText(query, "name", q.Name)
	if q.Parent != (tasker.ID{}) {
		query.Set("parent", q.Parent.String())
	}
	if q.DeadLettered != nil {
		query.Set("dead_lettered", strconv.FormatBool(*q.DeadLettered))
	}
	query["tag"] = q.Tags
	setText(query, "correlation_id", q.CorrelationID)
	setText(query, "idempotency_key", q.IdempotencyKey)
	setText(query, "initiator", q.Initiator)
	setText(query, "source_system", q.SourceSystem)
	for _, a := range q.Attributes {
		query.Add("attribute", a.String())
	}
	setTime(query, "created_after", q.CreatedAfter)
	setTime(query, "created_before", q.CreatedBefore)
	setTime(query, "due_before", q.DueBefore)
	setFlag(query, "overdue", q.Overdue)
	return query
}

// Attributes lists what tasks are found by as templates declare it; of a namespace, or of all
// when it is empty.
func (c *Client) Attributes(ctx context.Context, namespace string, page Page) (apiv1.AttributeList, error) {
	query := page.values()
	setText(query, "namespace", namespace)
	return get[apiv1.AttributeList](ctx, c, query, "v1", "attributes")
}

// CancelTask cancels a task and returns it as it is then. A task that is
// cancelled already stays so; one that is complete is a Conflict.
func (c *Client) CancelTask(ctx context.Context, task tasker.ID, reason, actor string) (apiv1.Task, error) {
	return c.cancel(ctx, task, reason, actor, url.Values{})
}

// CompensateTask gives a task up and has undone what its completed steps have done, in the
// reverse order of their completion, as its template says. It returns the task as it is then:
// most often in the phase compensating, and cancelled at once when there is nothing to undo.
// Asking again changes nothing; a task that has ended without it is a Conflict.
func (c *Client) CompensateTask(ctx context.Context, task tasker.ID, reason, actor string) (apiv1.Task, error) {
	return c.cancel(ctx, task, reason, actor, url.Values{"compensate": {"true"}})
}

func (c *Client) cancel(ctx context.Context, task tasker.ID, reason, actor string, query url.Values) (apiv1.Task, error) {
	setText(query, "reason", reason)
	setText(query, "cancelled_by", actor)
	return call[apiv1.Task](ctx, c, request{
		method: http.MethodDelete, path: []string{"v1", "tasks", task.String()}, query: query, repeatable: true,
	})
}

// ChangeDue gives an open task, or a step of it that has not ended, another due time or none, and returns the
// task as it is then.
func (c *Client) ChangeDue(ctx context.Context, task tasker.ID, d apiv1.ChangeDue) (apiv1.Task, error) {
	return call[apiv1.Task](ctx, c, request{method: http.MethodPut, path: []string{"v1", "tasks", task.String(), "due"}, body: d, repeatable: true})
}

// TaskTree returns a task with those above it, and those that its steps started: the topmost
// first, and each before its children.
func (c *Client) TaskTree(ctx context.Context, task tasker.ID) (apiv1.TaskTree, error) {
	return get[apiv1.TaskTree](ctx, c, nil, "v1", "tasks", task.String(), "tree")
}

// TaskTransitions lists the history of a task, oldest first.
func (c *Client) TaskTransitions(ctx context.Context, task tasker.ID, p Page) ([]tasker.Transition, error) {
	return get[[]tasker.Transition](ctx, c, p.values(), "v1", "tasks", task.String(), "transitions")
}

// StepTransitions lists the history of a step, oldest first.
func (c *Client) StepTransitions(ctx context.Context, task, step tasker.ID, p Page) ([]tasker.Transition, error) {
	return get[[]tasker.Transition](ctx, c, p.values(), "v1", "tasks", task.String(), "workflow_steps", step.String(), "transitions")
}

// Explain returns why something is where it is: a task, a step, an investigation, a case or
// an operation.
func (c *Client) Explain(ctx context.Context, id tasker.ID) (apiv1.Explanation, error) {
	return get[apiv1.Explanation](ctx, c, url.Values{}, "v1", "explain", id.String())
}

// ExplainQueue returns why steps of a namespace and a handler wait.
func (c *Client) ExplainQueue(ctx context.Context, namespace, handler string) (apiv1.Explanation, error) {
	return get[apiv1.Explanation](ctx, c, url.Values{}, "v1", "explain", "queue", namespace, handler)
}
