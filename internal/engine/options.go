package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
)

// checkStart validates the fields that control when a task starts.
func (f *faults) checkStart(r tasker.NewTask) {
	if !r.StartAt.IsZero() {
		f.checkYear("start_at", r.StartAt)
	}
	if !r.StartBy.IsZero() {
		f.checkYear("start_by", r.StartBy)
	}
	f.checkDelay("start_after_seconds", r.StartAfter, tasker.MaxStartDelay)
	f.checkDelay("start_within_seconds", r.StartWithin, tasker.MaxStartDelay)
	f.checkText("unique.key", r.Unique.Key, tasker.MaxUniqueKey, r.Unique.OnConflict != "")
	if p := r.Unique.OnConflict; p != "" && !slices.Contains(tasker.ConflictPolicies(), p) {
		f.add("unique.on_conflict", "must be fail, use_existing or cancel_existing, not %q", p)
	}
	f.checkDebounce(r)
	f.checkDue(r)
	if !r.StartAt.IsZero() && r.StartAfter != 0 {
		f.add("start_after_seconds", "conflicts with start_at: set only one of them")
	}
	if !r.StartBy.IsZero() && r.StartWithin != 0 {
		f.add("start_within_seconds", "conflicts with start_by: set only one of them")
	}
	if !r.StartBy.IsZero() && !r.StartAt.IsZero() && !r.StartBy.After(r.StartAt) {
		f.add("start_by", "must be after start_at")
	}
}

func (f *faults) checkDebounce(r tasker.NewTask) {
	d := r.Debounce
	if d == (tasker.Debounce{}) {
		return
	}
	f.checkText("debounce.key", d.Key, tasker.MaxUniqueKey, true)
	if d.Wait <= 0 || d.Wait > tasker.MaxStartDelay {
		f.add("debounce.wait_seconds", "must be greater than 0 and at most %d", int(tasker.MaxStartDelay.Seconds()))
	}
	if d.MaxWait != 0 && d.MaxWait < d.Wait || d.MaxWait > tasker.MaxStartDelay {
		f.add("debounce.max_wait_seconds",
			"must be at least wait_seconds and at most %d", int(tasker.MaxStartDelay.Seconds()))
	}
	if !r.StartAt.IsZero() || r.StartAfter != 0 {
		f.add("debounce", "conflicts with start_at and start_after_seconds: set only one of them")
	}
}

// newOptions returns the start options of a task from its request and its template, or nil if it
// has none.
func newOptions(r tasker.NewTask, t tasker.Template, asked bool) *postgres.NewOptions {
	if d := t.Start.Debounce; asked && r.Debounce.Key == "" && r.StartAt.IsZero() && r.StartAfter == 0 && d.Key != "" {
		r.Debounce = tasker.Debounce{Key: d.Key, Wait: time.Duration(d.WaitSeconds) * time.Second, MaxWait: time.Duration(d.MaxWaitSeconds) * time.Second}
	}
	if r.Debounce.Key != "" {
		r.StartAfter, r.Debounce.MaxWait = r.Debounce.Wait, cmp.Or(r.Debounce.MaxWait, 10*r.Debounce.Wait)
	}
	if r.StartWithin == 0 && r.StartBy.IsZero() {
		r.StartWithin = time.Duration(t.Start.WithinSeconds) * time.Second
	}
	if r.Unique.Key == "" {
		r.Unique = t.Start.Unique
	}
	due := newDeadline(r, t)
	if r.StartAfter == 0 && r.StartWithin == 0 && r.StartBy.IsZero() && r.Unique.Key == "" && due == nil {
		return nil
	}
	return &postgres.NewOptions{StartAfter: r.StartAfter, StartBy: r.StartBy, StartWithin: r.StartWithin, Unique: r.Unique, Debounce: r.Debounce, Due: due}
}

// setKeys evaluates the expressions of the template for the due time and the keys of a task.
func (c *creation) setKeys(ctx context.Context, g *graph, t *postgres.CreatedTask) (err error) {
	o := t.Options
	if o == nil {
		return nil
	}
	if g.due != nil && o.Due != nil && o.Due.Source == tasker.DueByTemplate {
		if o.Due.At, err = c.evaluateDue(ctx, g.due, t); err != nil {
			return err
		}
	}
	if g.unique != nil && t.Request.Unique.Key == "" {
		if o.Unique.Key, err = c.evaluateKey(ctx, g.unique, "unique", t); err != nil {
			return err
		}
	}
	if o.Debounce.Key != "" && t.Request.Debounce.Key == "" {
		if o.Debounce.Key, err = c.evaluateKey(ctx, g.merges, "debounce", t); err != nil {
			return err
		}
	}
	switch {
	case o.Debounce.Key != "" && o.Unique.Key != "":
		return tasker.Errorf(tasker.Invalid, "debounce: conflicts with unique.key: set only one of them")
	case o.Debounce.Key != "" && t.Request.IdempotencyKey != "":
		return tasker.Errorf(tasker.Invalid,
			"debounce: conflicts with idempotency_key: a repeated request is merged anyway")
	}
	return nil
}

// evaluate evaluates an expression of a template for a new task.
func (c *creation) evaluate(ctx context.Context, p *expression.Program, t *postgres.CreatedTask) (expression.Outcome, error) {
	list, cost := expression.EvaluateAll(ctx, []*expression.Program{p}, expression.Values{
		Context: t.Request.Context,
		Task:    expression.TaskValues{ID: t.UUID, Priority: t.Request.Priority, Namespace: t.Template.Namespace, CorrelationID: t.Correlation},
	})
	if err := ctx.Err(); err != nil {
		return expression.Outcome{}, err
	}
	if c.searchCost += cost; c.searchCost > tasker.MaxSearchCost {
		return expression.Outcome{}, tasker.Errorf(tasker.TooLarge,
			"the expressions of the tasks up to this one are too expensive to evaluate: create fewer at once")
	}
	return list[0], nil
}

// evaluateKey evaluates an expression of the template for a key of the task.
func (c *creation) evaluateKey(ctx context.Context, p *expression.Program, path string, t *postgres.CreatedTask) (string, error) {
	out, err := c.evaluate(ctx, p, t)
	if err != nil {
		return "", err
	}
	key, is := out.Value.(string)
	wrong := checkText(key, tasker.MaxUniqueKey, true)
	switch {
	case out.Err != nil:
		wrong = out.Err.Error()
	case !is:
		wrong = "must be a string"
	}
	if wrong != "" {
		return "", tasker.Errorf(tasker.Invalid, "context: start.%s.key of the template: %s", path, wrong)
	}
	return key, nil
}

// keyConflict is the error for a request whose unique key belongs to an open task.
type keyConflict struct {
	by     tasker.ID
	policy tasker.ConflictPolicy
	err    error
}

func (h *keyConflict) Error() string { return h.err.Error() }

// Unwrap returns the error that callers see.
func (h *keyConflict) Unwrap() error { return h.err }

// checkQuota returns a keyConflict if another open task has the unique key of a new task, unless
// the new task takes over the key.
func (c *creation) checkQuota(ctx context.Context, t *postgres.CreatedTask) error {
	key := t.UniqueKey()
	if key == (postgres.UniqueKey{}) {
		return nil
	}
	held := &keyConflict{policy: t.Options.Unique.OnConflict}
	for _, other := range c.tasks {
		if other.UniqueKey() == key {
			held.by = other.UUID
		}
	}
	takesOver := t.ReplacesExisting() && c.asked && held.by == tasker.ID{}
	if !takesOver && t.Options.Unique.OnConflict == tasker.ConflictCancelExisting {
		t.Options.Unique.OnConflict = tasker.ConflictFail
	}
	if held.by == (tasker.ID{}) && !takesOver {
		var err error
		if held.by, err = c.unique(ctx, key); err != nil {
			return err
		}
	}
	if held.by == (tasker.ID{}) || c.recreates && held.by == t.Request.RecreatedFrom {
		return nil
	}
	held.err = tasker.Errorf(tasker.Conflict,
		"task %s of template %s/%s has the same unique key and has not ended", held.by, key.Namespace, key.Name).
		WithDetails(map[string]string{"task_uuid": held.by.String()})
	return held
}

// expireTasks ends tasks if none of their steps was claimed in time. It skips locked tasks.
func (e *Engine) expireTasks(ctx context.Context, rows []tasker.StepRef) error {
	var ended []tasker.Task
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		ended = nil
		free, err := tx.LockFreeTasks(ctx, uniqueTasks(rows))
		if err != nil || len(free) == 0 {
			return err
		}
		ended, err = tx.ExpireTasks(ctx, free)
		return err
	})
	if err == nil && len(ended) > 0 {
		e.opts.Hooks.TasksExpired(ended)
		e.log.InfoContext(ctx, "tasks expired: no step was claimed in time", "tasks", len(ended))
	}
	return err
}

// mergeRequests stores the tasks. It merges debounced tasks into waiting ones with the same key.
func (c *creation) mergeRequests(ctx context.Context, tx *postgres.Tx) error {
	var plain, debounced []*postgres.CreatedTask
	for _, t := range c.tasks {
		if t.CanMerge() {
			debounced = append(debounced, t)
		} else {
			plain = append(plain, t)
		}
	}
	if len(plain) > 0 {
		if err := tx.InsertTasks(ctx, plain, postgres.Insertion{Contexts: true}); err != nil {
			return err
		}
	}
	if err := tx.LockDebounceKeys(ctx, debounced); err != nil {
		return err
	}
	for _, t := range debounced {
		t.MergedInto = tasker.ID{}
		waiting, err := tx.WaitingTask(ctx, t)
		if err != nil {
			return err
		}
		if waiting == nil {
			err = tx.InsertTasks(ctx, []*postgres.CreatedTask{t}, postgres.Insertion{Contexts: true})
		} else if waiting.UUID != t.UUID { // equal if an earlier attempt stored it
			err = c.mergeRequest(ctx, tx, waiting, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mergeRequest merges a request into a waiting task, which keeps its template version.
func (c *creation) mergeRequest(ctx context.Context, tx *postgres.Tx, waiting *postgres.WaitingTask, t *postgres.CreatedTask) error {
	as := t
	if waiting.Version != t.Template.Version {
		if t.Request.Version != "" {
			return tasker.Errorf(tasker.Conflict,
				"task %s has the same debounce key and is pending with version %s", waiting.UUID, waiting.Version).
				WithDetails(map[string]string{"task_uuid": waiting.UUID.String()})
		}
		decoded, _, err := payload.Decode(t.Request.Context, payload.Limits{})
		if err != nil {
			return wrapPath("context", err)
		}
		r := t.Request
		r.Version = waiting.Version
		other := *c
		other.fresh, other.templates = true, map[[3]string]*graph{}
		other.read = func(ctx context.Context, namespace, name, version string) (tasker.StoredTemplate, error) {
			t, err := tx.Template(ctx, namespace, name, version)
			t.Retired = nil // merging is allowed, since it creates no task
			return t, err
		}
		if as, err = other.plan(ctx, r, decoded); err != nil {
			return err
		}
		as.ContextSize, as.Options = t.ContextSize, t.Options
	}
	if err := tx.MergeRequest(ctx, waiting.UUID, as); err != nil {
		return err
	}
	t.MergedInto = waiting.UUID
	return nil
}

// addMerged replaces merged tasks in the result with the tasks into which they were merged.
func (c *creation) addMerged(out []Created) {
	for i, o := range out {
		if o.stored != nil && o.stored.MergedInto != (tasker.ID{}) {
			out[i] = Created{TaskUUID: o.stored.MergedInto, Warnings: o.Warnings}
		}
	}
}
