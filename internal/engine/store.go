package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

// Whether a commit whose answer got lost took effect is asked again at these rests,
// for as long as the request has time.
const (
	firstAsk   = 50 * time.Millisecond
	longestAsk = 2 * time.Second
	askAtLeast = 5 * time.Second // also when the request's time is over
)

// save stores the tasks in a transaction. When the answer to the commit is lost it
// stores the very same rows again: their ids were made before, so that the tasks
// are created once, whatever became of the first try.
func (c *creation) save(ctx context.Context) error {
	unknown := false
	for rest := firstAsk; ; rest = min(2*rest, longestAsk) {
		committing := false
		err := c.engine.db.InTx(ctx, func(tx *postgres.Tx) error {
			committing = false
			err := c.store(ctx, tx)
			committing = err == nil
			return err
		})
		switch {
		case err == nil:
			return nil
		case unknown && errors.Is(err, postgres.ErrTaskStored):
			return nil // the first commit took effect
		case committing && postgres.OutcomeUnknown(err):
			if !unknown && ctx.Err() != nil {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), askAtLeast)
				defer cancel() //nolint:gocritic // once: unknown is true from here on
			}
			unknown = true
		case !unknown, definite(err):
			return err
		}
		if !loop.Sleep(ctx, rest) {
			return c.maybeCreated(err)
		}
	}
}

// definite reports whether a repeated try was refused in a way that tells that the
// first one did not take effect either: it would have been found.
func definite(err error) bool {
	return errors.Is(err, postgres.ErrKeyTaken) || errors.Is(err, postgres.ErrTemplateGone)
}

// namedTasks is how many tasks a message names; all are in the details.
const namedTasks = 3

// maybeCreated says that the tasks may exist, and under which ids.
func (c *creation) maybeCreated(err error) error {
	ids := make([]string, len(c.tasks))
	for i, t := range c.tasks {
		ids[i] = t.UUID.String()
	}
	named, more := strings.Join(ids[:min(len(ids), namedTasks)], ", "), ""
	if len(ids) > namedTasks {
		more = fmt.Sprintf(" and %d more (see details)", len(ids)-namedTasks)
	}
	return &tasker.Error{
		Code: tasker.Unavailable, Err: err, Details: map[string][]string{"task_uuids": ids},
		Message: "the connection to the database broke off and the request may have created task " + named + more +
			": look whether it is there (GET /v1/tasks/{uuid}) before you create it again, or send the same request again if it has an idempotency_key",
	}
}

// Inserted returns a new task and its steps as they were stored, for an answer when
// they cannot be read.
func (c Created) Inserted() (tasker.Task, []tasker.Step) {
	s := c.stored
	r := s.Request
	t := tasker.Task{
		UUID: s.UUID, TemplateUUID: s.Template.UUID, Namespace: s.Template.Namespace, Name: s.Template.Name, Version: s.Template.Version,
		State: s.State, StateSince: c.at, Priority: r.Priority, Context: r.Context, Initiator: r.Initiator, SourceSystem: r.SourceSystem,
		Reason: r.Reason, Tags: r.Tags, CorrelationID: s.Correlation, ParentCorrelationID: r.ParentCorrelationID, IdempotencyKey: r.IdempotencyKey,
		CreatedAt: c.at, UpdatedAt: c.at, Counts: tasker.StepCounts{Total: len(s.Steps)},
	}
	if r.RecreatedFrom != (tasker.ID{}) {
		t.RecreatedFrom = &r.RecreatedFrom
	}
	if !r.StartAt.IsZero() {
		start := r.StartAt.UTC().Truncate(time.Microsecond)
		t.StartAt = &start
	}
	if s.Rejected {
		t.DeadLetter = tasker.DeadLetter{DeadLettered: true, At: &c.at, Reason: string(tasker.DependencyCycleDetected), Status: tasker.EntryPending}
	}
	steps := make([]tasker.Step, len(s.Steps))
	for i, x := range s.Steps {
		steps[i] = tasker.Step{
			UUID: x.UUID, TaskUUID: s.UUID, Name: x.Name, Type: x.Type, Handler: x.Handler.Callable, State: x.State, StateSince: c.at,
			DependenciesSatisfied: len(x.Parents) == 0, ReadyForExecution: len(x.Parents) == 0 && x.State == tasker.StepPending && s.State != tasker.TaskPending,
			TotalParents: len(x.Parents), MaxAttempts: x.Retry.MaxAttempts, Retryable: x.Retry.Retryable, Parents: x.Parents,
			CreatedAt: c.at, UpdatedAt: c.at,
		}
		if x.State == tasker.StepEnqueued {
			steps[i].Attempts = 1
			t.Counts.InProgress++
			t.Counts.Ready++
		} else {
			t.Counts.Pending++
		}
	}
	return t, steps
}
