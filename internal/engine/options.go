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

// checkStart refuses what a request says of the start of its task and cannot be meant.
func checkStart(r tasker.NewTask, fault func(path, format string, args ...any)) {
	for _, at := range []struct {
		path string
		at   time.Time
	}{{"start_at", r.StartAt}, {"start_by", r.StartBy}} {
		if !at.at.IsZero() && (at.at.Year() < 2000 || at.at.Year() > 2200) {
			fault(at.path, "must lie between the years 2000 and 2200")
		}
	}
	for _, d := range []struct {
		path string
		d    time.Duration
	}{{"start_after_seconds", r.StartAfter}, {"start_within_seconds", r.StartWithin}} {
		if d.d < 0 || d.d > tasker.MaxStartDelay {
			fault(d.path, "must be from 0 to %d", int(tasker.MaxStartDelay.Seconds()))
		}
	}
	if wrong := textFault(r.Unique.Key, tasker.MaxUniqueKey, r.Unique.OnConflict != ""); wrong != "" {
		fault("unique.key", "%s", wrong)
	}
	if p := r.Unique.OnConflict; p != "" && !slices.Contains(tasker.ConflictPolicies(), p) {
		fault("unique.on_conflict", "must be fail, use_existing or cancel_existing, not %q", p)
	}
	checkDebounce(r, fault)
	checkDue(r, fault)
	if !r.StartAt.IsZero() && r.StartAfter != 0 {
		fault("start_after_seconds", "a task has either this or start_at")
	}
	if !r.StartBy.IsZero() && r.StartWithin != 0 {
		fault("start_within_seconds", "a task has either this or start_by")
	}
	if !r.StartBy.IsZero() && !r.StartAt.IsZero() && !r.StartBy.After(r.StartAt) {
		fault("start_by", "must be after start_at")
	}
}

func checkDebounce(r tasker.NewTask, fault func(path, format string, args ...any)) {
	d := r.Debounce
	if d == (tasker.Debounce{}) {
		return
	}
	if wrong := textFault(d.Key, tasker.MaxUniqueKey, true); wrong != "" {
		fault("debounce.key", "%s", wrong)
	}
	if d.Wait <= 0 || d.Wait > tasker.MaxStartDelay {
		fault("debounce.wait_seconds", "must be more than 0, and %d at most", int(tasker.MaxStartDelay.Seconds()))
	}
	if d.MaxWait != 0 && d.MaxWait < d.Wait || d.MaxWait > tasker.MaxStartDelay {
		fault("debounce.max_wait_seconds", "must not be less than wait_seconds, and %d at most", int(tasker.MaxStartDelay.Seconds()))
	}
	if !r.StartAt.IsZero() || r.StartAfter != 0 {
		fault("debounce", "a task has either this or a time at which it starts")
	}
}

// optionsOf returns what bounds the start of the task of a request; nil when nothing does.
func optionsOf(r tasker.NewTask, t tasker.Template, asked bool) *postgres.NewOptions {
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
	due := dueOfRequest(r, t)
	if r.StartAfter == 0 && r.StartWithin == 0 && r.StartBy.IsZero() && r.Unique.Key == "" && due == nil {
		return nil
	}
	return &postgres.NewOptions{StartAfter: r.StartAfter, StartBy: r.StartBy, StartWithin: r.StartWithin, Unique: r.Unique, Debounce: r.Debounce, Due: due}
}

// setKeys evaluates the keys of a task, where they are those of its template.
func (c *creation) setKeys(ctx context.Context, g *graph, t *postgres.CreatedTask) (err error) {
	o := t.Options
	if o == nil {
		return nil
	}
	if g.due != nil && o.Due != nil && o.Due.Source == tasker.DueByTemplate {
		if o.Due.At, err = c.dueAt(ctx, g.due, t); err != nil {
			return err
		}
	}
	if g.unique != nil && t.Request.Unique.Key == "" {
		if o.Unique.Key, err = c.keyOf(ctx, g.unique, "unique", t); err != nil {
			return err
		}
	}
	if o.Debounce.Key != "" && t.Request.Debounce.Key == "" {
		if o.Debounce.Key, err = c.keyOf(ctx, g.merges, "debounce", t); err != nil {
			return err
		}
	}
	switch {
	case o.Debounce.Key != "" && o.Unique.Key != "":
		return tasker.Errorf(tasker.Invalid, "debounce: a task has either this or a unique key")
	case o.Debounce.Key != "" && t.Request.IdempotencyKey != "":
		return tasker.Errorf(tasker.Invalid, "debounce: a request that may be merged has no idempotency_key; sent again it is merged again")
	}
	return nil
}

// evaluate evaluates an expression of a template for a task that is not there yet.
func (c *creation) evaluate(ctx context.Context, p *expression.Program, t *postgres.CreatedTask) (expression.Outcome, error) {
	list, cost := expression.All(ctx, []*expression.Program{p}, expression.Values{
		Context: t.Request.Context,
		Task:    expression.TaskValues{ID: t.UUID, Priority: t.Request.Priority, Namespace: t.Template.Namespace, CorrelationID: t.Correlation},
	})
	if err := ctx.Err(); err != nil {
		return expression.Outcome{}, err
	}
	if c.searchCost += cost; c.searchCost > tasker.MaxSearchCost {
		return expression.Outcome{}, tasker.Errorf(tasker.TooLarge, "the expressions of the tasks up to this one take too much work together; create fewer at once")
	}
	return list[0], nil
}

// keyOf evaluates a key of a template for a task.
func (c *creation) keyOf(ctx context.Context, p *expression.Program, path string, t *postgres.CreatedTask) (string, error) {
	out, err := c.evaluate(ctx, p, t)
	if err != nil {
		return "", err
	}
	key, is := out.Value.(string)
	wrong := textFault(key, tasker.MaxUniqueKey, true)
	switch {
	case out.Err != nil:
		wrong = out.Err.Error()
	case !is:
		wrong = "is not a text"
	}
	if wrong != "" {
		return "", tasker.Errorf(tasker.Invalid, "context: start.%s.key of the template: %s", path, wrong)
	}
	return key, nil
}

// A heldKey says that an open task has the unique key of a request.
type heldKey struct {
	by     tasker.ID
	policy tasker.ConflictPolicy
	err    error
}

func (h *heldKey) Error() string { return h.err.Error() }

// Unwrap returns the error that callers get.
func (h *heldKey) Unwrap() error { return h.err }

// mayHave refuses a task whose unique key another one has, unless it takes that over.
func (c *creation) mayHave(ctx context.Context, t *postgres.CreatedTask) error {
	key := t.UniqueKey()
	if key == (postgres.UniqueKey{}) {
		return nil
	}
	held := &heldKey{policy: t.Options.Unique.OnConflict}
	for _, other := range c.tasks {
		if other.UniqueKey() == key {
			held.by = other.UUID
		}
	}
	takesOver := t.Replaces() && c.asked && held.by == tasker.ID{}
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
	held.err = tasker.Errorf(tasker.Conflict, "task %s of template %s/%s has the same unique key and has not ended", held.by, key.Namespace, key.Name).
		WithDetails(map[string]string{"task_uuid": held.by.String()})
	return held
}

// expireTasks ends those of the tasks that nobody works on and of which no step was claimed in time.
func (e *Engine) expireTasks(ctx context.Context, rows []tasker.StepRef) error {
	var ended []tasker.Task
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		ended = nil
		free, err := tx.LockFreeTasks(ctx, tasksOfSteps(rows))
		if err != nil || len(free) == 0 {
			return err
		}
		ended, err = tx.ExpireTasks(ctx, free)
		return err
	})
	if err == nil && len(ended) > 0 {
		e.tasksExpired(ended)
		e.log.InfoContext(ctx, "tasks that nobody began in time were ended", "tasks", len(ended))
	}
	return err
}

// mergeIn stores the tasks, except for those that are merged into tasks which wait for more requests.
func (c *creation) mergeIn(ctx context.Context, tx *postgres.Tx) error {
	var plain, debounced []*postgres.CreatedTask
	for _, t := range c.tasks {
		if t.Merges() {
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
		} else if waiting.UUID != t.UUID { // else an earlier try has stored it
			err = c.merge(ctx, tx, waiting, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// merge merges a request into a waiting task, which keeps its version.
func (c *creation) merge(ctx context.Context, tx *postgres.Tx, waiting *postgres.WaitingTask, t *postgres.CreatedTask) error {
	as := t
	if waiting.Version != t.Template.Version {
		if t.Request.Version != "" {
			return tasker.Errorf(tasker.Conflict, "task %s has the same debounce key and waits with version %s", waiting.UUID, waiting.Version).
				WithDetails(map[string]string{"task_uuid": waiting.UUID.String()})
		}
		decoded, _, err := payload.Decode(t.Request.Context, payload.Limits{})
		if err != nil {
			return within("context", err)
		}
		r := t.Request
		r.Version = waiting.Version
		other := *c
		other.fresh, other.templates = true, map[[3]string]*graph{}
		other.read = func(ctx context.Context, namespace, name, version string) (tasker.StoredTemplate, error) {
			t, err := tx.Template(ctx, namespace, name, version)
			t.Retired = nil // no task is made of it
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

// merged says of requests that were merged which task they led to.
func (c *creation) merged(out []Created) {
	for i, o := range out {
		if o.stored != nil && o.stored.MergedInto != (tasker.ID{}) {
			out[i] = Created{TaskUUID: o.stored.MergedInto, Warnings: o.Warnings}
		}
	}
}
