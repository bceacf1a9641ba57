package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/templatefile"
)

// What may be created at once: so many tasks, with so many steps all together.
const (
	MaxBulk      = 1000
	MaxBulkSteps = 50_000
)

// Created is the task of a request, and whether it is new or found by idempotency key.
type Created struct {
	TaskUUID tasker.ID
	New      bool
	Warnings []tasker.Fault // search attributes that a new task does not have, although its template declares them

	stored *postgres.CreatedTask // of a new one
}

// CreateTasks creates tasks, all or none. With several, an error names the task.
func (e *Engine) CreateTasks(ctx context.Context, requests []tasker.NewTask) ([]Created, error) {
	if err := checkCount(requests); err != nil {
		return nil, err
	}
	ctx = postgres.WithConnClass(ctx, postgres.Creates)
	const tries = 5 // each lost to another who created the same key, or replaced the template
	for n := 1; ; n++ {
		created, err := e.createTasks(ctx, requests, len(requests) > 1 || n > 1)
		again := errors.Is(err, postgres.ErrKeyTaken) || errors.Is(err, postgres.ErrUniqueKeyTaken) || errors.Is(err, postgres.ErrTemplateGone) || errors.Is(err, errOldTemplate)
		if again && n < tries {
			continue
		}
		if again {
			err = &tasker.Error{Code: tasker.Unavailable, Err: err, Message: "other requests use the same idempotency key or unique key, or replace the template, at the same time: send the request again"}
		}
		return created, err
	}
}

func checkCount(requests []tasker.NewTask) error {
	if len(requests) == 0 || len(requests) > MaxBulk {
		return tasker.Errorf(tasker.Invalid, "%d tasks; 1 to %d can be created at once", len(requests), MaxBulk)
	}
	return nil
}

// createTasks is one try: a fresh one reads every template, others use cached ones.
func (e *Engine) createTasks(ctx context.Context, requests []tasker.NewTask, fresh bool) ([]Created, error) {
	c := creation{
		engine: e, fresh: fresh, templates: map[[3]string]*graph{}, read: e.db.Template, unique: e.db.UniqueTask, asked: true,
		checks: templatefile.NewBudget(),
	}
	out, err := c.addAll(ctx, requests, e.db.KeyHolders)
	if err != nil || len(c.tasks) == 0 {
		return out, err
	}
	if err := c.save(ctx); err != nil {
		return nil, err
	}
	c.merged(out)
	e.notify(c.namespaces())
	if slices.ContainsFunc(c.tasks, (*postgres.CreatedTask).Decides) {
		e.decideAtOnce()
	}
	return out, nil
}

// atIndex says which of several requests an error is about.
func atIndex(err error, i, n int) error {
	if n == 1 {
		return err
	}
	return within(fmt.Sprintf("tasks[%d]", i), err)
}

// within says in which part of a request an error lies.
func within(part string, err error) error {
	var known *tasker.Error
	if !errors.As(err, &known) {
		return err
	}
	at := *known
	at.Message = part + ": " + known.Message
	if faults, ok := known.Details.([]tasker.Fault); ok {
		faults = slices.Clone(faults)
		for j, f := range faults {
			switch {
			case f.Path == "":
				faults[j].Path = part
			case strings.HasPrefix(f.Path, "["):
				faults[j].Path = part + f.Path
			default:
				faults[j].Path = part + "." + f.Path
			}
		}
		at.Details = faults
	}
	return &at
}

// A creation collects the tasks of one call.
type creation struct {
	engine    *Engine
	fresh     bool // read every template
	tasks     []*postgres.CreatedTask
	steps     int                                             // of all of them
	byKey     map[postgres.IdempotencyKey]*postgres.KeyHolder // who holds the keys of the requests, before this call or by it
	templates map[[3]string]*graph
	read      func(ctx context.Context, namespace, name, version string) (tasker.StoredTemplate, error)
	unique    func(ctx context.Context, key postgres.UniqueKey) (tasker.ID, error) // the open task that has a unique key
	asked     bool                                                                 // by a caller: other tasks are cancelled and requests merged as it or the template says
	recreates bool                                                                 // its tasks take the unique keys of those that they replace
	checks    *templatefile.Budget                                                 // of all contexts together

	searchCost int  // of the attributes of all of them
	remembered bool // the last template was read before

	// What the last try to store them found.
	unknown bool // they may be stored
	refused bool // another try would fail with the same error
}

// addAll plans the tasks of requests, but for those whose idempotency keys have one already.
func (c *creation) addAll(ctx context.Context, requests []tasker.NewTask, holders func(context.Context, []postgres.IdempotencyKey) ([]postgres.KeyHolder, error)) ([]Created, error) {
	c.byKey = make(map[postgres.IdempotencyKey]*postgres.KeyHolder)
	var keys []postgres.IdempotencyKey
	for _, r := range requests {
		k := postgres.IdempotencyKey{Namespace: r.Namespace, Key: r.IdempotencyKey}
		if textFault(k.Namespace, maxNamespace, true) == "" && k.Key != "" && textFault(k.Key, maxIdempotencyKey, false) == "" { // else check refuses it
			keys = append(keys, k)
		}
	}
	if len(keys) > 0 {
		list, err := holders(ctx, keys)
		if err != nil {
			return nil, err
		}
		for i := range list {
			c.byKey[list[i].IdempotencyKey] = &list[i]
		}
	}
	out := make([]Created, len(requests))
	for i, r := range requests {
		var err error
		if out[i], err = c.add(ctx, r); err != nil {
			return nil, atIndex(err, i, len(requests))
		}
	}
	return out, nil
}

// add plans the task of one request, unless its key has one already.
func (c *creation) add(ctx context.Context, r tasker.NewTask) (Created, error) {
	if len(r.Context) == 0 {
		r.Context = json.RawMessage("{}")
	}
	decoded, size, err := check(r)
	if err != nil {
		return Created{}, err
	}
	key := postgres.IdempotencyKey{Namespace: r.Namespace, Key: r.IdempotencyKey}
	if holder := c.byKey[key]; holder != nil {
		return sameRequest(r, decoded, holder)
	}
	if r.RecreatedFrom != (tasker.ID{}) {
		if _, err := c.engine.db.Task(ctx, r.RecreatedFrom); err != nil {
			if tasker.CodeOf(err) == tasker.NotFound {
				err = tasker.Errorf(tasker.Invalid, "recreated_from: no task %s", r.RecreatedFrom)
			}
			return Created{}, err
		}
	}
	t, err := c.addPlanned(ctx, r, decoded)
	if err != nil && c.remembered {
		return Created{}, errOldTemplate
	}
	if held, is := errors.AsType[*heldKey](err); is && held.policy == tasker.ConflictUseExisting {
		return Created{TaskUUID: held.by}, nil
	}
	if err != nil {
		return Created{}, err
	}
	t.ContextSize = size
	if r.IdempotencyKey != "" {
		c.byKey[key] = &postgres.KeyHolder{IdempotencyKey: key, TaskUUID: t.UUID, RequestDigest: t.Digest}
	}
	return Created{TaskUUID: t.UUID, New: true, Warnings: t.Warnings, stored: t}, nil
}

// addPlanned adds a task to those that are to be stored.
func (c *creation) addPlanned(ctx context.Context, r tasker.NewTask, decoded any) (*postgres.CreatedTask, error) {
	t, err := c.plan(ctx, r, decoded)
	if err != nil {
		return nil, err
	}
	if err := c.mayHave(ctx, t); err != nil {
		return nil, err
	}
	if c.steps += len(t.Steps); c.steps > MaxBulkSteps {
		return nil, tasker.Errorf(tasker.TooLarge,
			"the tasks up to this one have more than %d steps together; create fewer at once", MaxBulkSteps)
	}
	if t.Digest, err = digest(r, decoded); err != nil {
		return nil, err
	}
	c.tasks = append(c.tasks, t)
	return t, nil
}

func sameRequest(r tasker.NewTask, decoded any, holder *postgres.KeyHolder) (Created, error) {
	same, err := asksForTheSame(r, decoded, holder.RequestDigest)
	if err != nil {
		return Created{}, err
	}
	if !same {
		return Created{}, tasker.Errorf(tasker.Conflict,
			"idempotency_key %q belongs to task %s, which was asked for with other values", r.IdempotencyKey, holder.TaskUUID).
			WithDetails(map[string]string{"task_uuid": holder.TaskUUID.String()})
	}
	return Created{TaskUUID: holder.TaskUUID}, nil
}

// plan lays out a task and its steps.
func (c *creation) plan(ctx context.Context, r tasker.NewTask, decoded any) (*postgres.CreatedTask, error) {
	g, remembered, err := c.template(ctx, r)
	if err != nil {
		return nil, err
	}
	c.remembered = remembered
	if err := g.input.Check(ctx, c.checks, decoded); err != nil {
		return nil, within("context", err)
	}
	options := optionsOf(r, g.stored.Template, c.asked)
	started := r.StartAt.IsZero() && (options == nil || options.StartAfter == 0) && g.cycle == nil
	t := &postgres.CreatedTask{
		UUID: tasker.NewID(), Template: g.stored, Request: r, Steps: g.steps(started), Correlation: r.CorrelationID,
		Remembered: remembered, Newest: remembered && r.Version == "",
		Options: options,
	}
	if t.Correlation == "" {
		t.Correlation = t.UUID.String() // by which the task is found without an index of its own
	}
	if err := c.find(ctx, g, t); err != nil {
		return nil, err
	}
	if err := c.setKeys(ctx, g, t); err != nil {
		return nil, err
	}
	if t.Limits, err = c.limitsOf(ctx, g, t); err != nil {
		return nil, err
	}
	switch {
	case g.cycle != nil:
		t.State, t.Rejected = tasker.TaskError, true
		t.RejectReason = "steps depend on each other in a cycle: " + strings.Join(g.cycle, " -> ")
	case !started:
		t.State = tasker.TaskPending
	case t.Decides(), slices.ContainsFunc(t.Steps, func(s postgres.CreatedStep) bool { return s.State == tasker.StepEnqueued }):
		t.State = tasker.TaskStepsInProcess
	default:
		t.State = tasker.TaskWaitingForDependencies
	}
	return t, nil
}

// find evaluates what a task is found by.
func (c *creation) find(ctx context.Context, g *graph, t *postgres.CreatedTask) error {
	cost, err := c.engine.attributes(ctx, g, t)
	if c.searchCost += cost; c.searchCost > tasker.MaxSearchCost {
		return tasker.Errorf(tasker.TooLarge, "the search attributes of the tasks up to this one take too much work together; create fewer at once")
	}
	return err
}

// errOldTemplate says that a request makes no task of a template that is remembered, of whatever reason; there may
// be a newer one, and nothing is stored that would tell.
var errOldTemplate = errors.New("template is remembered")

// template returns the template of a request, and whether it is one that was read before.
func (c *creation) template(ctx context.Context, r tasker.NewTask) (g *graph, remembered bool, err error) {
	key := [3]string{r.Namespace, r.Name, r.Version}
	if g, ok := c.templates[key]; ok {
		return g, false, nil
	}
	if g, ok := c.engine.byName.get(key); ok && !c.fresh {
		return g, true, nil
	}
	t, err := c.read(ctx, r.Namespace, r.Name, r.Version)
	if err == nil && t.Retired != nil {
		err = retired(t, r.Version)
	}
	if err != nil {
		return nil, false, err
	}
	g, err = c.engine.graphOf(t)
	if err != nil {
		return nil, false, fmt.Errorf("template %s/%s %s: %w", t.Namespace, t.Name, t.Version, err)
	}
	c.templates[key] = g
	c.engine.byName.put(key, g)
	return g, false, nil
}

// retired is why no task is made of a version. It is NotFound when no version was asked for,
// because then there is none that would do.
func retired(t tasker.StoredTemplate, asked string) error {
	const again = "%s: retired since %s by %s: %s; have tasks made of it again (tasker-ctl template unretire)"
	code, of := tasker.Conflict, fmt.Sprintf("template %s/%s %s takes no new tasks", t.Namespace, t.Name, t.Version)
	if asked == "" {
		code, of = tasker.NotFound, fmt.Sprintf("no version of template %s/%s takes new tasks; the newest is %s", t.Namespace, t.Name, t.Version)
	}
	return tasker.Errorf(code, again+", or name another version", of, t.Retired.At.UTC().Format(time.RFC3339), t.Retired.By, t.Retired.Reason)
}

// reject stores the tasks with the investigations of those that can never run, in the place of
// those whose unique keys they take over.
func (c *creation) reject(ctx context.Context, tx *postgres.Tx) error {
	if err := tx.CancelUnique(ctx, c.tasks); err != nil {
		return err
	}
	if err := c.mergeIn(ctx, tx); err != nil {
		return err
	}
	for _, t := range c.tasks {
		if !t.Rejected {
			continue
		}
		if t.MergedInto != (tasker.ID{}) { // it is not stored
			continue
		}
		_, err := tx.OpenEntry(ctx, postgres.NewEntry{
			TaskUUID: t.UUID, Reason: tasker.DependencyCycleDetected, DetailCode: tasker.DependencyCycle, DetectedBy: tasker.DetectedInline,
			OriginalState: tasker.TaskInitializing, Since: time.Now(), Actor: tasker.SystemActor, Notes: t.RejectReason,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *creation) namespaces() []string {
	seen := map[string]bool{}
	var list []string
	for _, t := range c.tasks {
		if n := t.Template.Namespace; !seen[n] {
			seen[n] = true
			list = append(list, n)
		}
	}
	return list
}

// The longest texts, in characters.
const (
	maxNamespace      = 128
	maxIdempotencyKey = 255
)

// check validates a request and returns its decoded context and size.
func check(r tasker.NewTask) (decoded any, contextSize int, err error) {
	var faults []tasker.Fault
	fault := func(path, format string, args ...any) {
		faults = append(faults, tasker.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	for _, f := range []struct {
		path, text string
		most       int
		needed     bool
	}{
		{"namespace", r.Namespace, maxNamespace, true},
		{"name", r.Name, 128, true},
		{"version", r.Version, 64, false},
		{"initiator", r.Initiator, 255, false},
		{"source_system", r.SourceSystem, 255, false},
		{"reason", r.Reason, 2000, false},
		{"correlation_id", r.CorrelationID, 128, false},
		{"parent_correlation_id", r.ParentCorrelationID, 128, false},
		{"idempotency_key", r.IdempotencyKey, maxIdempotencyKey, false},
	} {
		if wrong := textFault(f.text, f.most, f.needed); wrong != "" {
			fault(f.path, "%s", wrong)
		}
	}
	if len(r.Tags) > 50 {
		fault("tags", "%d tags; 50 is the limit", len(r.Tags))
	}
	for i, tag := range r.Tags {
		if wrong := textFault(tag, 128, true); wrong != "" {
			fault(fmt.Sprintf("tags[%d]", i), "%s", wrong)
		}
	}
	if r.Priority < -1000 || r.Priority > 1000 {
		fault("priority", "must be from -1000 to 1000, not %d", r.Priority)
	}
	checkStart(r, fault)
	if decoded, contextSize, err = payload.Decode(r.Context, payload.Limits{}); err != nil {
		return nil, 0, within("context", err)
	}
	if _, ok := decoded.(map[string]any); !ok {
		fault("context", "must be a JSON object")
	}
	if len(faults) > 0 {
		return nil, 0, tasker.Errorf(tasker.Invalid, "the task cannot be created: %s", faults[0]).WithDetails(faults)
	}
	return decoded, contextSize, nil
}

// textFault says what is wrong with a short text.
func textFault(s string, most int, needed bool) string {
	if needed && payload.IsBlank(s) {
		return "is missing"
	}
	return payload.TextFault(s, most)
}
