package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/batch"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/templatefile"
)

// Delays between checks whether an unanswered commit took effect.
const (
	firstAsk   = 50 * time.Millisecond
	longestAsk = 2 * time.Second
	askAtLeast = 5 * time.Second // also when the request's time is over
)

// Small creations that arrive while others are being written share a transaction.
const (
	sharedWriters  = 2
	stepBytes      = 1 << 10                // what a step counts
	attributeBytes = 512                    // what an attribute that a template declares counts
	sharedLockWait = 250 * time.Millisecond // for another transaction
	sharedTimeout  = 5 * time.Second
)

// newSharedWriter returns what writes small creations.
func (e *Engine) newSharedWriter() *batch.Writer[*creation] {
	return &batch.Writer[*creation]{
		Write: e.storeShared, Size: (*creation).size, Writers: sharedWriters,
		MaxItems: tasker.MaxSharedCreates, MaxSize: tasker.MaxSharedCreateBytes,
	}
}

// hasWorkers reports whether a worker with steps was heard of lately.
func (e *Engine) hasWorkers() bool {
	return e.now().Sub(time.Unix(0, e.reported.Load())) < heartbeatsOfALease*e.heartbeat
}

// PaceOfCreates returns the part of its time that storing tasks may take, 0 to 1.
func (e *Engine) PaceOfCreates() float64 { return e.pacer.Share() }

// size is about how many bytes the tasks take.
func (c *creation) size() int {
	n := c.steps * stepBytes
	for _, t := range c.tasks {
		n += len(t.Request.Context) + len(t.Attributes)*attributeBytes
	}
	return n
}

// storeShared stores several creations together, or each alone if that fails.
func (e *Engine) storeShared(ctx context.Context, list []*creation) error {
	return e.pacer.Do(ctx, e.creations.Waiting, func() error { return e.storeTogether(ctx, list) })
}

func (e *Engine) storeTogether(ctx context.Context, list []*creation) error {
	ctx, cancel := context.WithTimeout(ctx, sharedTimeout)
	defer cancel()
	tasks := make([]*postgres.CreatedTask, 0, len(list))
	for _, c := range list {
		tasks = append(tasks, c.tasks...)
		c.unknown = true // should this panic
	}
	unknown, err := e.db.StoreTasks(ctx, tasks, postgres.Insertion{LockTimeout: sharedLockWait, Contexts: true})
	for _, c := range list {
		c.unknown, c.refused = unknown, len(list) == 1 && refused(err)
	}
	return err
}

// refused reports whether an error of a creation by itself would be the same again.
func refused(err error) bool {
	return errors.Is(err, postgres.ErrTaskStored) || errors.Is(err, postgres.ErrKeyTaken) || errors.Is(err, postgres.ErrUniqueKeyTaken) || errors.Is(err, postgres.ErrTemplateGone)
}

// share stores the tasks together with those of others, or by themselves if that fails.
func (c *creation) share(ctx context.Context) error {
	written, err := c.engine.creations.Do(ctx, c)
	if err == nil || !written || c.unknown || c.refused || postgres.IsUnavailable(err) {
		return err
	}
	return c.store(ctx)
}

// store stores the tasks by themselves, with the investigations of those that can never
// run, and notes whether an error leaves open if they are stored.
func (c *creation) store(ctx context.Context) (err error) {
	if !c.rejected() && !c.replaces() {
		return c.engine.pacer.Do(ctx, c.engine.creations.Waiting, func() error {
			c.unknown, err = c.engine.db.StoreTasks(ctx, c.tasks, postgres.Insertion{Contexts: len(c.tasks) == 1, Repeat: true})
			return err
		})
	}
	if c.replaces() {
		select {
		case c.engine.keyed <- struct{}{}:
			defer func() { <-c.engine.keyed }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	committing := false
	err = c.engine.db.InTx(ctx, func(tx *postgres.Tx) error {
		committing = false
		err := c.reject(ctx, tx)
		committing = err == nil
		return err
	})
	c.unknown = committing && postgres.OutcomeUnknown(err)
	return err
}

// save stores the tasks and repeats it with the same ids if the commit's answer is lost.
func (c *creation) save(ctx context.Context) error {
	try, unknown := c.store, false
	if c.size() <= tasker.MaxSmallCreateBytes && !c.rejected() && !c.replaces() {
		try = c.share
	}
	for rest := firstAsk; ; rest = min(2*rest, longestAsk) {
		err := try(ctx)
		try = c.store
		switch {
		case err == nil:
			return nil
		case unknown && errors.Is(err, postgres.ErrTaskStored):
			return nil // the first commit took effect
		case c.unknown:
			if !unknown && ctx.Err() != nil {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), askAtLeast)
				defer cancel() //nolint:gocritic // once: unknown is true from here on
			}
			unknown = true
			c.acceptOlderTemplates()
		case !unknown, definite(err):
			return err
		}
		if !loop.Sleep(ctx, rest) {
			return c.maybeCreated(err)
		}
	}
}

// rejected reports whether there is a task that can never run.
func (c *creation) rejected() bool {
	return slices.ContainsFunc(c.tasks, func(t *postgres.CreatedTask) bool { return t.Rejected })
}

// replaces reports whether there is a task that takes over the unique key of another, or may be merged into one.
func (c *creation) replaces() bool {
	return slices.ContainsFunc(c.tasks, func(t *postgres.CreatedTask) bool { return t.Replaces() || t.Merges() })
}

// acceptOlderTemplates lets a repeated store find tasks whose template was replaced meanwhile.
func (c *creation) acceptOlderTemplates() {
	for _, t := range c.tasks {
		t.Remembered, t.Newest = false, false
	}
}

// definite reports whether a refusal proves that the first try took no effect.
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

// IsWhole reports whether [Created.Inserted] is the complete new task.
func (c Created) IsWhole() bool {
	return c.New && !c.stored.Rejected && c.stored.Options == nil && len(c.stored.StoredContext) > 0 && len(c.stored.Attributes) == 0
}

// Inserted returns a new task and its steps as they were stored.
func (c Created) Inserted() (tasker.Task, []tasker.Step) {
	s := c.stored
	r := s.Request
	if len(s.StoredContext) > 0 {
		r.Context = s.StoredContext
	}
	t := tasker.Task{
		UUID: s.UUID, TemplateUUID: s.Template.UUID, Namespace: s.Template.Namespace, Name: s.Template.Name, Version: s.Template.Version,
		State: s.State, StateSince: s.CreatedAt, Priority: r.Priority, Context: r.Context, Initiator: r.Initiator, SourceSystem: r.SourceSystem,
		Reason: r.Reason, Tags: r.Tags, CorrelationID: s.Correlation, ParentCorrelationID: r.ParentCorrelationID, IdempotencyKey: r.IdempotencyKey,
		CreatedAt: s.CreatedAt, UpdatedAt: s.CreatedAt, Counts: tasker.StepCounts{Total: len(s.Steps)},
	}
	if r.RecreatedFrom != (tasker.ID{}) {
		t.RecreatedFrom = &r.RecreatedFrom
	}
	if !r.StartAt.IsZero() {
		start := r.StartAt.UTC().Truncate(time.Microsecond)
		t.StartAt = &start
	}
	if s.Rejected {
		t.DeadLetter = tasker.DeadLetter{DeadLettered: true, At: &s.CreatedAt, Reason: string(tasker.DependencyCycleDetected), Status: tasker.EntryPending}
	}
	steps := make([]tasker.Step, len(s.Steps))
	for i, x := range s.Steps {
		steps[i] = tasker.Step{
			UUID: x.UUID, TaskUUID: s.UUID, Name: x.Name, Type: x.Type, Handler: x.Handler.Callable, State: x.State, StateSince: s.CreatedAt,
			DependenciesSatisfied: len(x.Parents) == 0, ReadyForExecution: len(x.Parents) == 0 && x.State == tasker.StepPending && s.State != tasker.TaskPending,
			TotalParents: len(x.Parents), MaxAttempts: x.Retry.MaxAttempts, Retryable: x.Retry.Retryable, Parents: x.Parents,
			CreatedAt: s.CreatedAt, UpdatedAt: s.CreatedAt,
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

// A Recreation makes new tasks in the place of others, in a transaction of the caller's.
type Recreation struct {
	tx *postgres.Tx
	c  creation
}

// Recreation returns one without tasks.
func (e *Engine) Recreation(tx *postgres.Tx) *Recreation {
	return &Recreation{tx: tx, c: creation{engine: e, fresh: true, templates: map[[3]string]*graph{}, read: tx.Template, unique: tx.UniqueTask, recreates: true}}
}

// Add adds a task and returns its id. It returns NotFound, Invalid, TooLarge, or a Conflict for
// cyclic steps.
func (r *Recreation) Add(ctx context.Context, t tasker.NewTask) (tasker.ID, error) {
	decoded, size, err := check(t)
	if err != nil {
		return tasker.ID{}, err
	}
	r.c.checks = templatefile.NewTimerBudget() // each is a request of its own
	made, err := r.c.addPlanned(ctx, t, decoded)
	if err != nil {
		return tasker.ID{}, err
	}
	if made.Rejected {
		r.c.tasks = r.c.tasks[:len(r.c.tasks)-1]
		return tasker.ID{}, tasker.Errorf(tasker.Conflict, "%s", made.RejectReason)
	}
	made.ContextSize = size
	return made.UUID, nil
}

// Store stores the tasks and returns namespaces for [Engine.OnEnqueued].
func (r *Recreation) Store(ctx context.Context) ([]string, error) {
	if len(r.c.tasks) == 0 {
		return nil, nil
	}
	if err := r.tx.FreeUniqueKeys(ctx, r.c.tasks); err != nil {
		return nil, err
	}
	return r.c.namespaces(), r.tx.InsertTasks(ctx, r.c.tasks, postgres.Insertion{})
}
