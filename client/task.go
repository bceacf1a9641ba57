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
	"tasker.example/tasker/internal/loop"
)

// TaskQuery selects and pages tasks, newest first.
type TaskQuery struct {
	Status         tasker.TaskState // empty means any
	Phase          tasker.TaskPhase
	Namespace      string
	Name           string
	DeadLettered   *bool
	Tags           []string // all of them
	CorrelationID  string
	IdempotencyKey string
	Initiator      string
	SourceSystem   string
	Attributes     []tasker.AttributeFilter // all of them
	CreatedAfter   time.Time                // inclusive
	CreatedBefore  time.Time
	Parent         tasker.ID // task whose steps started them; zero means any
	Overdue        bool      // only open tasks past their due time, longest overdue first
	DueBefore      time.Time // only open tasks due before this time, earliest first
	Before         string    // NextBefore of the previous page
	Page
}

// CreateTask creates a task. Repeating a request with an idempotency key returns the same task.
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

const (
	awaitFor   = 30 * time.Second       // shorter than the idle timeout of common proxies
	awaitPause = 500 * time.Millisecond // minimum between two requests of Wait
	awaitLimit = time.Minute            // how long Wait tolerates an outage
)

// AwaitTask returns a task with its steps as soon as it is settled (see [apiv1.Task.Settled]), and
// otherwise after the given time, at most a minute. The server may respond earlier.
func (c *Client) AwaitTask(ctx context.Context, task tasker.ID, wait time.Duration) (apiv1.Task, error) {
	wait = max(0, min(wait, maxClaimWait))
	query := url.Values{"wait_ms": {strconv.FormatInt(wait.Milliseconds(), 10)}}
	return call[apiv1.Task](ctx, c, request{method: http.MethodGet, path: []string{"v1", "tasks", task.String()}, query: query, repeatable: true, wait: wait})
}

// Wait returns a task when it is settled: it has ended, or has an investigation that is open or has
// ended as permanently failed. Once the server has responded, Wait tolerates an outage of a minute.
// It returns the last state of the task and the error if the server stays unavailable or ctx ends.
func (c *Client) Wait(ctx context.Context, task tasker.ID) (apiv1.Task, error) {
	var last apiv1.Task
	var answered time.Time
	for {
		begun := time.Now()
		t, err := c.AwaitTask(ctx, task, awaitFor)
		switch {
		case err == nil && t.Settled():
			return t, nil
		case err == nil:
			last, answered = t, time.Now()
		case ctx.Err() != nil:
			return last, ctx.Err()
		case tasker.CodeOf(err) != tasker.Unavailable || time.Since(answered) > awaitLimit:
			return last, err
		}
		loop.Sleep(ctx, max(0, awaitPause-time.Since(begun)))
	}
}

// Tasks lists tasks without their steps, newest first.
func (c *Client) Tasks(ctx context.Context, q TaskQuery) (apiv1.TaskList, error) {
	query := q.addTo(q.toValues())
	setText(query, "before", q.Before)
	return get[apiv1.TaskList](ctx, c, query, "v1", "tasks")
}

// TaskRequestQuery selects and pages task requests, newest first.
type TaskRequestQuery struct {
	Namespace string
	Refused   *bool // nil means all
	Page
}

// TaskRequests lists tasks that were requested with the SQL function tasker.create_task and are not
// created.
func (c *Client) TaskRequests(ctx context.Context, q TaskRequestQuery) (apiv1.TaskRequestList, error) {
	query := q.toValues()
	setText(query, "namespace", q.Namespace)
	if q.Refused != nil {
		query.Set("refused", strconv.FormatBool(*q.Refused))
	}
	return get[apiv1.TaskRequestList](ctx, c, query, "v1", "task-requests")
}

// DismissTaskRequest deletes the request for a task that is not created.
func (c *Client) DismissTaskRequest(ctx context.Context, task tasker.ID) error {
	return c.do(ctx, request{method: http.MethodDelete, path: []string{"v1", "task-requests", task.String()}}, nil)
}

// CancelTasks cancels open tasks that match a query, one batch at a time. Repeat the call while
// More of the response is true. A dry run only reports the next tasks.
func (c *Client) CancelTasks(ctx context.Context, q TaskQuery, r apiv1.CancelTasks) (apiv1.CancelledTasks, error) {
	return call[apiv1.CancelledTasks](ctx, c, request{method: http.MethodPost, path: []string{"v1", "tasks", "cancel"}, query: q.addTo(url.Values{}), body: r, repeatable: true})
}

// addTo adds the conditions to query.
func (q TaskQuery) addTo(query url.Values) url.Values {
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

// Attributes lists the search attributes that templates of a namespace, or of all namespaces,
// declare.
func (c *Client) Attributes(ctx context.Context, namespace string, page Page) (apiv1.AttributeList, error) {
	query := page.toValues()
	setText(query, "namespace", namespace)
	return get[apiv1.AttributeList](ctx, c, query, "v1", "attributes")
}

// CancelTask cancels a task and returns it. Cancelling a cancelled task succeeds; a complete task
// is a Conflict.
func (c *Client) CancelTask(ctx context.Context, task tasker.ID, reason, actor string) (apiv1.Task, error) {
	return c.cancel(ctx, task, reason, actor, url.Values{})
}

// CompensateTask cancels a task and compensates its completed steps in reverse order of
// completion. It returns the task, usually in the phase compensating, or cancelled if there is
// nothing to compensate. Repeating the call has no effect. A task that has ended without
// compensation is a Conflict.
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

// ChangeDue changes or removes the due time of an open task or step and returns the task.
func (c *Client) ChangeDue(ctx context.Context, task tasker.ID, d apiv1.ChangeDue) (apiv1.Task, error) {
	return sendRepeatable[apiv1.Task](ctx, c, http.MethodPut, d, "v1", "tasks", task.String(), "due")
}

// TaskTree returns a task with its ancestors and descendants; parents precede their children.
func (c *Client) TaskTree(ctx context.Context, task tasker.ID) (apiv1.TaskTree, error) {
	return get[apiv1.TaskTree](ctx, c, nil, "v1", "tasks", task.String(), "tree")
}

// TaskTransitions lists the history of a task, oldest first.
func (c *Client) TaskTransitions(ctx context.Context, task tasker.ID, p Page) ([]tasker.Transition, error) {
	return get[[]tasker.Transition](ctx, c, p.toValues(), "v1", "tasks", task.String(), "transitions")
}

// StepTransitions lists the history of a step, oldest first.
func (c *Client) StepTransitions(ctx context.Context, task, step tasker.ID, p Page) ([]tasker.Transition, error) {
	return get[[]tasker.Transition](ctx, c, p.toValues(), "v1", "tasks", task.String(), "workflow_steps", step.String(), "transitions")
}

// Explain returns why a task, step, investigation, case, operation or hold is in its state.
func (c *Client) Explain(ctx context.Context, id tasker.ID) (apiv1.Explanation, error) {
	return get[apiv1.Explanation](ctx, c, url.Values{}, "v1", "explain", id.String())
}

// ExplainQueue returns why the steps of a namespace and a handler are waiting.
func (c *Client) ExplainQueue(ctx context.Context, namespace, handler string) (apiv1.Explanation, error) {
	return get[apiv1.Explanation](ctx, c, url.Values{}, "v1", "explain", "queue", namespace, handler)
}
