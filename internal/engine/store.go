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

// Delays before it is checked whether a commit without a response took effect.
const (
	firstAsk   = 50 * time.Millisecond
	longestAsk = 2 * time.Second
	askAtLeast = 5 * time.Second // time for this, even if the request has timed out
)

// Small creations that arrive while others are being stored share a transaction.
const (
	sharedWriters  = 2
	stepBytes      = 1 << 10                // assumed size of a step
	attributeBytes = 512                    // assumed size of an attribute
	sharedLockWait = 250 * time.Millisecond // maximum time to wait for a lock
	sharedTimeout  = 5 * time.Second
)

// newSharedWriter returns the writer of small creations.
func (e *Engine) newSharedWriter() *batch.Writer[*creation] {
	return &batch.Writer[*creation]{
		Write: e.storeShared, Size: (*creation).size, Writers: sharedWriters,
		MaxItems: tasker.MaxSharedCreates, MaxSize: tasker.MaxSharedCreateBytes,
	}
}

// hasWorkers reports whether a worker with steps was active recently.
func (e *Engine) hasWorkers() bool {
	return e.now().Sub(time.Unix(0, e.outages.reported.Load())) < heartbeatsOfALease*e.opts.Leases.HeartbeatInterval
}

// CreatePace returns the share of time that storing tasks may use, from 0 to 1.
func (e *Engine) CreatePace() float64 { return e.creator.pacer.Share() }

// size returns the approximate size of the tasks in bytes.
func (c *creation) size() int {
	n := c.steps * stepBytes
	for _, t := range c.tasks {
		n += len(t.Request.Context) + len(t.Attributes)*attributeBytes
	}
	return n
}

func (e *Engine) storeShared(ctx context.Context, list []*creation) error {
	return e.creator.pacer.Do(ctx, e.creator.creations.Waiting, func() error { return e.storeTogether(ctx, list) })
}

func (e *Engine) storeTogether(ctx context.Context, list []*creation) error {
	ctx, cancel := context.WithTimeout(ctx, sharedTimeout)
	defer cancel()
	tasks := make([]*postgres.CreatedTask, 0, len(list))
	for _, c := range list {
		tasks = append(tasks, c.tasks...)
		c.unknown = true // holds if there is a panic
	}
	unknown, err := e.db.StoreTasks(ctx, tasks, postgres.Insertion{LockTimeout: sharedLockWait, Contexts: true})
	for _, c := range list {
		c.unknown, c.refused = unknown, len(list) == 1 && isRejection(err)
	}
	return err
}

// isRejection reports whether storing a creation again would fail with the same error.
func isRejection(err error) bool {
	return errors.Is(err, postgres.ErrTaskStored) || isKeyOrTemplateRace(err)
}

// writeShared stores the tasks together with those of other creations, or alone if that fails.
func (c *creation) writeShared(ctx context.Context) error {
	written, err := c.engine.creator.creations.Do(ctx, c)
	if err == nil || !written || c.unknown || c.refused || postgres.IsUnavailable(err) {
		return err
	}
	return c.store(ctx)
}

// store stores the tasks alone and opens investigations for those that can never run. If an error
// leaves open whether the tasks were stored, it sets unknown.
func (c *creation) store(ctx context.Context) (err error) {
	if !c.hasRejection() && !c.replacesTasks() {
		return c.engine.creator.pacer.Do(ctx, c.engine.creator.creations.Waiting, func() error {
			c.unknown, err = c.engine.db.StoreTasks(ctx, c.tasks, postgres.Insertion{Contexts: len(c.tasks) == 1, Repeat: true})
			return err
		})
	}
	if c.replacesTasks() {
		select {
		case c.engine.creator.keyed <- struct{}{}:
			defer func() { <-c.engine.creator.keyed }()
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
	c.unknown = committing && postgres.IsOutcomeUnknown(err)
	return err
}

// save stores the tasks. If the result of a commit is unknown, it tries again with the same ids.
func (c *creation) save(ctx context.Context) error {
	try, unknown := c.store, false
	if c.size() <= tasker.MaxSmallCreateBytes && !c.hasRejection() && !c.replacesTasks() {
		try = c.writeShared
	}
	for rest := firstAsk; ; rest = min(2*rest, longestAsk) {
		err := try(ctx)
		try = c.store
		switch {
		case err == nil:
			return nil
		case unknown && errors.Is(err, postgres.ErrTaskStored):
			return nil // the first commit succeeded
		case c.unknown:
			if !unknown && ctx.Err() != nil {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), askAtLeast)
				defer cancel() //nolint:gocritic // at most once, since unknown is true afterwards
			}
			unknown = true
			c.acceptOlderTemplates()
		case !unknown, errors.Is(err, postgres.ErrKeyTaken), errors.Is(err, postgres.ErrTemplateGone):
			// The first attempt was not committed.
			return err
		}
		if !loop.Sleep(ctx, rest) {
			return c.wrapUncertain(err)
		}
	}
}

func (c *creation) hasRejection() bool {
	return slices.ContainsFunc(c.tasks, func(t *postgres.CreatedTask) bool { return t.Rejected })
}

// replacesTasks reports whether a task takes over a unique key or may be merged into another task.
func (c *creation) replacesTasks() bool {
	return slices.ContainsFunc(c.tasks, func(t *postgres.CreatedTask) bool { return t.ReplacesExisting() || t.CanMerge() })
}

// acceptOlderTemplates lets a retry find tasks whose template was replaced in the meantime.
func (c *creation) acceptOlderTemplates() {
	for _, t := range c.tasks {
		t.Remembered, t.Newest = false, false
	}
}

// namedTasks limits the number of tasks named in a message. The details contain all.
const namedTasks = 3

// wrapUncertain returns an Unavailable that contains the ids under which the tasks may exist.
func (c *creation) wrapUncertain(err error) error {
	ids := mapSlice(c.tasks, func(t *postgres.CreatedTask) string { return t.UUID.String() })
	named, more := strings.Join(ids[:min(len(ids), namedTasks)], ", "), ""
	if len(ids) > namedTasks {
		more = fmt.Sprintf(" and %d more (see details)", len(ids)-namedTasks)
	}
	return &tasker.Error{
		Code: tasker.Unavailable, Err: err, Details: map[string][]string{"task_uuids": ids},
		Message: "lost the connection to the database, and the request may have created task " + named + more +
			": check whether it exists (GET /v1/tasks/{uuid}) before you create it again, or repeat the request " +
			"if it has an idempotency_key",
	}
}

// IsWhole reports whether [Created.Inserted] can return the complete new task.
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
		Reason: r.Reason, Tags: r.Tags, CorrelationID: s.Correlation, ParentCorrelationID: tasker.OptionalString(r.ParentCorrelationID), IdempotencyKey: r.IdempotencyKey,
		CreatedAt: s.CreatedAt, UpdatedAt: s.CreatedAt, StepCounts: tasker.StepCounts{Total: len(s.Steps)},
	}
	if r.RecreatedFrom != (tasker.ID{}) {
		t.RecreatedFrom = &r.RecreatedFrom
	}
	if !r.StartAt.IsZero() {
		start := r.StartAt.UTC().Truncate(time.Microsecond)
		t.StartAt = &start
	}
	if s.Rejected {
		t.DeadLetter = tasker.DeadLetter{DeadLettered: true, DeadLetteredAt: &s.CreatedAt, MarkReason: tasker.OptionalString(tasker.DependencyCycleDetected), EntryStatus: tasker.EntryPending}
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
			t.InProgress++
			t.Ready++
		} else {
			t.Pending++
		}
		steps[i].Describe()
	}
	t.Describe()
	return t, steps
}

// Recreation collects tasks that replace others and stores them in the caller's transaction.
type Recreation struct {
	tx *postgres.Tx
	c  creation
}

// NewRecreation returns a Recreation without tasks.
func (e *Engine) NewRecreation(tx *postgres.Tx) *Recreation {
	c := e.newCreation(tx, nil)
	c.recreates = true
	return &Recreation{tx: tx, c: c}
}

// Add adds a task and returns its id. It returns NotFound, Invalid, TooLarge, or a Conflict if the
// steps of the template depend on each other in a cycle.
func (r *Recreation) Add(ctx context.Context, t tasker.NewTask) (tasker.ID, error) {
	r.c.checks = templatefile.NewTimerBudget() // one budget per task
	made, err := r.c.addUnrequested(ctx, t)
	if err != nil {
		return tasker.ID{}, err
	}
	return made.UUID, nil
}

// Store stores the tasks. It returns their namespaces for [Engine.Enqueued].
func (r *Recreation) Store(ctx context.Context) ([]string, error) {
	if len(r.c.tasks) == 0 {
		return nil, nil
	}
	if err := r.tx.FreeUniqueKeys(ctx, r.c.tasks); err != nil {
		return nil, err
	}
	return r.c.listNamespaces(), r.tx.InsertTasks(ctx, r.c.tasks, postgres.Insertion{})
}
