package client

import (
	"context"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/loop"
)

// CreateTask creates a task. Repeating a request with an idempotency key returns the same task.
func (c *Client) CreateTask(ctx context.Context, t apiv1.CreateTask) (tasker.Task, error) {
	r := newRequest(endpoint.CreateTask, none, t)
	r.repeatable = t.IdempotencyKey != ""
	return send[tasker.Task](ctx, c, r)
}

// CreateTasks creates all tasks of a list, at most 1,000, or none.
func (c *Client) CreateTasks(ctx context.Context, list []apiv1.CreateTask) (apiv1.CreatedTasks, error) {
	r := newRequest(endpoint.CreateTasks, none, list)
	r.repeatable = !slices.ContainsFunc(list, func(t apiv1.CreateTask) bool { return t.IdempotencyKey == "" })
	return send[apiv1.CreatedTasks](ctx, c, r)
}

// Task returns a task with its steps.
func (c *Client) Task(ctx context.Context, task tasker.ID) (tasker.Task, error) {
	return call(ctx, c, endpoint.GetTask, apiv1.TaskQuery{}, none, task)
}

const (
	awaitFor   = 30 * time.Second       // shorter than the idle timeout of common proxies
	awaitPause = 500 * time.Millisecond // minimum between two requests of Wait
	awaitLimit = time.Minute            // how long Wait tolerates an outage
)

// AwaitTask returns a task with its steps as soon as it is settled (see [tasker.Task.Settled]), and
// otherwise after the given time, at most a minute. The server may respond earlier.
func (c *Client) AwaitTask(ctx context.Context, task tasker.ID, wait time.Duration) (tasker.Task, error) {
	wait = max(0, min(wait, maxClaimWait))
	r := newRequest(endpoint.GetTask, apiv1.TaskQuery{Wait: wait}, none, task)
	r.wait = wait
	return send[tasker.Task](ctx, c, r)
}

// Wait returns a task when it is settled: it has ended, or has an investigation that is open or has
// ended as permanently failed. Once the server has responded, Wait tolerates an outage of a minute.
// It returns the last state of the task and the error if the server stays unavailable or ctx ends.
func (c *Client) Wait(ctx context.Context, task tasker.ID) (tasker.Task, error) {
	var last tasker.Task
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
func (c *Client) Tasks(ctx context.Context, f tasker.TaskFilter) (apiv1.TaskList, error) {
	return call(ctx, c, endpoint.ListTasks, f, none)
}

// TaskRequests lists tasks that were requested with the SQL function tasker.create_task and are not
// created.
func (c *Client) TaskRequests(ctx context.Context, f tasker.TaskRequestFilter) (apiv1.TaskRequestList, error) {
	return call(ctx, c, endpoint.ListTaskRequests, f, none)
}

// DismissTaskRequest deletes the request for a task that is not created.
func (c *Client) DismissTaskRequest(ctx context.Context, task tasker.ID) error {
	_, err := call(ctx, c, endpoint.DeleteTaskRequest, none, none, task)
	return err
}

// CancelTasks cancels open tasks that match a query, one batch at a time. Repeat the call while
// More of the response is true. A dry run only reports the next tasks.
func (c *Client) CancelTasks(ctx context.Context, f tasker.TaskFilter, r apiv1.CancelTasks) (tasker.CancelBatch, error) {
	return call(ctx, c, endpoint.CancelTasks, apiv1.TaskSelection{TaskFilter: f}, r)
}

// Attributes lists the search attributes that templates of a namespace, or of all namespaces,
// declare.
func (c *Client) Attributes(ctx context.Context, namespace string, page apiv1.Page) (apiv1.AttributeList, error) {
	return call(ctx, c, endpoint.ListAttributes, apiv1.NamespaceQuery{Namespace: namespace, Page: page}, none)
}

// CancelTask cancels a task and returns it. Cancelling a cancelled task succeeds; a complete task
// is a Conflict.
func (c *Client) CancelTask(ctx context.Context, task tasker.ID, reason, actor string) (tasker.Task, error) {
	return c.cancel(ctx, task, apiv1.CancelTaskQuery{Reason: reason, CancelledBy: actor})
}

// CompensateTask cancels a task and compensates its completed steps in reverse order of
// completion. It returns the task, usually in the phase compensating, or cancelled if there is
// nothing to compensate. Repeating the call has no effect. A task that has ended without
// compensation is a Conflict.
func (c *Client) CompensateTask(ctx context.Context, task tasker.ID, reason, actor string) (tasker.Task, error) {
	return c.cancel(ctx, task, apiv1.CancelTaskQuery{Reason: reason, CancelledBy: actor, Compensate: true})
}

func (c *Client) cancel(ctx context.Context, task tasker.ID, q apiv1.CancelTaskQuery) (tasker.Task, error) {
	return call(ctx, c, endpoint.CancelTask, q, none, task)
}

// ChangeDue changes or removes the due time of an open task or step and returns the task.
func (c *Client) ChangeDue(ctx context.Context, task tasker.ID, d apiv1.ChangeDue) (tasker.Task, error) {
	return call(ctx, c, endpoint.ChangeDue, none, d, task)
}

// TaskTree returns a task with its ancestors and descendants; parents precede their children.
func (c *Client) TaskTree(ctx context.Context, task tasker.ID) (tasker.TaskTree, error) {
	return call(ctx, c, endpoint.GetTaskTree, none, none, task)
}

// TaskTransitions lists the history of a task, oldest first.
func (c *Client) TaskTransitions(ctx context.Context, task tasker.ID, p apiv1.Page) ([]tasker.Transition, error) {
	return call(ctx, c, endpoint.ListTaskTransitions, apiv1.HistoryPage(p), none, task)
}

// StepTransitions lists the history of a step, oldest first.
func (c *Client) StepTransitions(ctx context.Context, task, step tasker.ID, p apiv1.Page) ([]tasker.Transition, error) {
	return call(ctx, c, endpoint.ListStepTransitions, apiv1.HistoryPage(p), none, task, step)
}

// Explain returns why a task, step, investigation, case, operation or hold is in its state.
func (c *Client) Explain(ctx context.Context, id tasker.ID) (tasker.Explanation, error) {
	return call(ctx, c, endpoint.Explain, none, none, id)
}

// ExplainQueue returns why the steps of a namespace and a handler are waiting.
func (c *Client) ExplainQueue(ctx context.Context, namespace, handler string) (tasker.Explanation, error) {
	return call(ctx, c, endpoint.ExplainQueue, none, none, namespace, handler)
}
