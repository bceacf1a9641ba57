package engine

import (
	"bytes"
	"cmp"
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

// Limits of one call of CreateTasks.
const (
	MaxBulk      = 1000   // tasks
	MaxBulkSteps = 50_000 // total steps of all tasks
)

// Created describes the task that belongs to a request.
type Created struct {
	TaskUUID tasker.ID
	New      bool           // false if the task existed already: a key identified it, or the request was merged into it
	Warnings []tasker.Fault // search attributes that the template defines and a new task does not have

	stored *postgres.CreatedTask // nil unless New
}

// CreateTasks creates all requested tasks, or none if it returns an error. With several requests,
// the error names the one that failed.
func (e *Engine) CreateTasks(ctx context.Context, requests []tasker.NewTask) ([]Created, error) {
	if err := checkCount(requests); err != nil {
		return nil, err
	}
	ctx = postgres.WithConnClass(ctx, postgres.Creates)
	const tries = 5 // a try fails if a concurrent request uses the same key or replaces the template
	for n := 1; ; n++ {
		created, err := e.createTasks(ctx, requests, len(requests) > 1 || n > 1)
		again := isKeyOrTemplateRace(err) || errors.Is(err, errOldTemplate)
		if again && n < tries {
			continue
		}
		if again {
			err = &tasker.Error{Code: tasker.Unavailable, Err: err, Message: "concurrent requests use the same " +
				"idempotency key or unique key, or replace the template: send the request again"}
		}
		return created, err
	}
}

func checkCount(requests []tasker.NewTask) error {
	if len(requests) == 0 || len(requests) > MaxBulk {
		return tasker.Errorf(tasker.Invalid, "invalid number of tasks %d: must be from 1 to %d", len(requests), MaxBulk)
	}
	return nil
}

// isKeyOrTemplateRace reports whether a concurrent transaction took a key or replaced the template.
func isKeyOrTemplateRace(err error) bool {
	return errors.Is(err, postgres.ErrKeyTaken) || errors.Is(err, postgres.ErrUniqueKeyTaken) || errors.Is(err, postgres.ErrTemplateGone)
}

// createTasks tries once to create the tasks. It uses cached templates unless fresh is set.
func (e *Engine) createTasks(ctx context.Context, requests []tasker.NewTask, fresh bool) ([]Created, error) {
	c := e.newCreation(e.db, templatefile.NewBudget())
	c.fresh, c.asked = fresh, true
	out, err := c.addAll(ctx, requests, e.db.KeyHolders)
	if err != nil || len(c.tasks) == 0 {
		return out, err
	}
	if err := c.save(ctx); err != nil {
		return nil, err
	}
	c.addMerged(out)
	e.notify(c.listNamespaces())
	if slices.ContainsFunc(c.tasks, (*postgres.CreatedTask).HasDecisions) {
		e.decideNow()
	}
	return out, nil
}

// wrapAtIndex adds the index of a request to an error, unless there is only one request.
func wrapAtIndex(err error, i, n int) error {
	if n == 1 {
		return err
	}
	return wrapPath(fmt.Sprintf("tasks[%d]", i), err)
}

// wrapPath prefixes an error and the paths of its faults with a path.
func wrapPath(part string, err error) error {
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

// creation collects the tasks that one call creates.
type creation struct {
	engine    *Engine
	uuid      tasker.ID // of the only task; zero: a new one
	fresh     bool      // ignore cached templates
	tasks     []*postgres.CreatedTask
	steps     int                                             // total steps of all tasks
	byKey     map[postgres.IdempotencyKey]*postgres.KeyHolder // tasks with the requests' keys, new or old
	templates map[[3]string]*graph
	read      func(ctx context.Context, namespace, name, version string) (tasker.StoredTemplate, error)
	unique    func(ctx context.Context, key postgres.UniqueKey) (tasker.ID, error) // finds the open task with a key
	asked     bool                                                                 // requested by a caller
	recreates bool                                                                 // tasks take over unique keys
	checks    *templatefile.Budget                                                 // for validating the contexts

	searchCost int  // total cost of the search attribute expressions of all tasks
	remembered bool // the template of the last task came from the cache

	// Results of the last attempt to store the tasks.
	unknown bool // they may be stored
	refused bool // another try would fail with the same error
}

// newCreation returns an empty creation that reads templates and unique keys from the given source.
func (e *Engine) newCreation(from interface {
	Template(ctx context.Context, namespace, name, version string) (tasker.StoredTemplate, error)
	UniqueTask(ctx context.Context, key postgres.UniqueKey) (tasker.ID, error)
}, checks *templatefile.Budget,
) creation {
	return creation{
		engine: e, fresh: true, templates: map[[3]string]*graph{}, read: from.Template, unique: from.UniqueTask, checks: checks,
	}
}

// addAll plans tasks for those requests whose idempotency keys have no task yet.
func (c *creation) addAll(ctx context.Context, requests []tasker.NewTask, holders func(context.Context, []postgres.IdempotencyKey) ([]postgres.KeyHolder, error)) ([]Created, error) {
	c.byKey = make(map[postgres.IdempotencyKey]*postgres.KeyHolder)
	var keys []postgres.IdempotencyKey
	for _, r := range requests {
		k := postgres.IdempotencyKey{Namespace: r.Namespace, Key: r.IdempotencyKey}
		if checkText(k.Namespace, maxNamespace, true) == "" && k.Key != "" && checkText(k.Key, maxIdempotencyKey, false) == "" { // check rejects others
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
			return nil, wrapAtIndex(err, i, len(requests))
		}
	}
	return out, nil
}

// add plans the task of one request, unless its idempotency key already has a task.
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
		return resolveDuplicate(r, decoded, holder)
	}
	if r.RecreatedFrom != (tasker.ID{}) {
		if _, err := c.engine.db.Task(ctx, r.RecreatedFrom); err != nil {
			if tasker.CodeOf(err) == tasker.NotFound {
				err = tasker.Errorf(tasker.Invalid, "recreated_from: task %s not found", r.RecreatedFrom)
			}
			return Created{}, err
		}
	}
	t, err := c.addPlanned(ctx, r, decoded)
	if err != nil && c.remembered {
		return Created{}, errOldTemplate
	}
	if held, is := errors.AsType[*keyConflict](err); is && held.policy == tasker.ConflictUseExisting {
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

// addPlanned plans a task and adds it to those to store.
func (c *creation) addPlanned(ctx context.Context, r tasker.NewTask, decoded any) (*postgres.CreatedTask, error) {
	t, err := c.plan(ctx, r, decoded)
	if err != nil {
		return nil, err
	}
	if err := c.checkQuota(ctx, t); err != nil {
		return nil, err
	}
	if c.steps += len(t.Steps); c.steps > MaxBulkSteps {
		return nil, tasker.Errorf(tasker.TooLarge,
			"the tasks up to this one have more than %d steps in total: create fewer at once", MaxBulkSteps)
	}
	if t.Digest, err = computeDigest(r, decoded); err != nil {
		return nil, err
	}
	c.tasks = append(c.tasks, t)
	return t, nil
}

// addUnrequested is addPlanned for a task that no caller requested, such as a child task. It
// returns a Conflict if the steps of the template depend on each other in a cycle.
func (c *creation) addUnrequested(ctx context.Context, r tasker.NewTask) (*postgres.CreatedTask, error) {
	decoded, size, err := check(r)
	if err != nil {
		return nil, err
	}
	t, err := c.addPlanned(ctx, r, decoded)
	if err != nil {
		return nil, err
	}
	if t.Rejected {
		c.tasks = c.tasks[:len(c.tasks)-1]
		return nil, tasker.Errorf(tasker.Conflict, "%s", t.RejectReason)
	}
	t.ContextSize = size
	return t, nil
}
func resolveDuplicate(r tasker.NewTask, decoded any, holder *postgres.KeyHolder) (Created, error) {
	sum, err := computeDigest(r, decoded)
	if err != nil {
		return Created{}, err
	}
	if !bytes.Equal(sum, holder.RequestDigest) {
		return Created{}, tasker.Errorf(tasker.Conflict,
			"idempotency_key %q was used for task %s with different values: use a "+
				"new key", r.IdempotencyKey, holder.TaskUUID).
			WithDetails(map[string]string{"task_uuid": holder.TaskUUID.String()})
	}
	return Created{TaskUUID: holder.TaskUUID}, nil
}

// plan returns a new task with its steps, keys, limits and search attributes.
func (c *creation) plan(ctx context.Context, r tasker.NewTask, decoded any) (*postgres.CreatedTask, error) {
	g, remembered, err := c.loadGraph(ctx, r)
	if err != nil {
		return nil, err
	}
	c.remembered = remembered
	if err := g.input.Check(ctx, c.checks, decoded); err != nil {
		return nil, wrapPath("context", err)
	}
	options := newOptions(r, g.stored.Template, c.asked)
	started := r.StartAt.IsZero() && (options == nil || options.StartAfter == 0) && g.cycle == nil
	t := &postgres.CreatedTask{
		UUID: cmp.Or(c.uuid, tasker.NewID()), Template: g.stored, Request: r, Steps: g.newSteps(started), Correlation: r.CorrelationID,
		Remembered: remembered, Newest: remembered && r.Version == "",
		Options: options,
	}
	if t.Correlation == "" {
		t.Correlation = t.UUID.String() // a unique value, which needs no index
	}
	if err := c.evaluateSearch(ctx, g, t); err != nil {
		return nil, err
	}
	if err := c.setKeys(ctx, g, t); err != nil {
		return nil, err
	}
	if t.Limits, err = c.evaluateLimits(ctx, g, t); err != nil {
		return nil, err
	}
	switch {
	case g.cycle != nil:
		t.State, t.Rejected = tasker.TaskError, true
		t.RejectReason = "steps form a dependency cycle: " + strings.Join(g.cycle, " -> ")
	case !started:
		t.State = tasker.TaskPending
	case t.HasDecisions(), slices.ContainsFunc(t.Steps, func(s postgres.CreatedStep) bool { return s.State == tasker.StepEnqueued }):
		t.State = tasker.TaskStepsInProcess
	default:
		t.State = tasker.TaskWaitingForDependencies
	}
	return t, nil
}

// evaluateSearch evaluates the search attributes of a task and adds their cost to the total. It
// returns TooLarge if the total exceeds the limit.
func (c *creation) evaluateSearch(ctx context.Context, g *graph, t *postgres.CreatedTask) error {
	cost, err := c.engine.evaluateAttributes(ctx, g, t)
	if c.searchCost += cost; c.searchCost > tasker.MaxSearchCost {
		return tasker.Errorf(tasker.TooLarge,
			"the search attributes of the tasks up to this one are too expensive to evaluate: create fewer at once")
	}
	return err
}

// errOldTemplate indicates that a request failed with a cached template. A newer version of the
// template may accept it.
var errOldTemplate = errors.New("template is cached")

// loadGraph returns the template of a request and whether it came from the engine's cache.
func (c *creation) loadGraph(ctx context.Context, r tasker.NewTask) (g *graph, remembered bool, err error) {
	key := [3]string{r.Namespace, r.Name, r.Version}
	if g, ok := c.templates[key]; ok {
		return g, false, nil
	}
	if g, ok := c.engine.creator.byName.get(key); ok && !c.fresh {
		return g, true, nil
	}
	t, err := c.read(ctx, r.Namespace, r.Name, r.Version)
	if err == nil && t.Retired != nil {
		err = newRetiredError(t, r.Version)
	}
	if err != nil {
		return nil, false, err
	}
	g, err = c.engine.loadGraph(t)
	if err != nil {
		return nil, false, fmt.Errorf("template %s/%s %s: %w", t.Namespace, t.Name, t.Version, err)
	}
	c.templates[key] = g
	c.engine.creator.byName.put(key, g)
	return g, false, nil
}

// newRetiredError returns the error for a retired version: a Conflict if the request names the
// version, or NotFound if it names none and none is available.
func newRetiredError(t tasker.StoredTemplate, asked string) error {
	const again = "%s: retired since %s by %s: %s; to use it again, run tasker-ctl template unretire"
	code, of := tasker.Conflict, fmt.Sprintf("template %s/%s %s does not accept "+
		"new tasks", t.Namespace, t.Name, t.Version)
	if asked == "" {
		code, of = tasker.NotFound, fmt.Sprintf("no version of template %s/%s accepts new tasks; the "+
			"newest is %s", t.Namespace, t.Name, t.Version)
	}
	return tasker.Errorf(code, again+", or use another version", of, t.Retired.At.UTC().Format(time.RFC3339), t.Retired.By, t.Retired.Reason)
}

// reject stores the tasks and opens investigations for those that can never run. It also cancels
// the tasks whose unique keys the new tasks take over.
func (c *creation) reject(ctx context.Context, tx *postgres.Tx) error {
	if err := tx.CancelUnique(ctx, c.tasks); err != nil {
		return err
	}
	if err := c.mergeRequests(ctx, tx); err != nil {
		return err
	}
	for _, t := range c.tasks {
		if !t.Rejected {
			continue
		}
		if t.MergedInto != (tasker.ID{}) {
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

func (c *creation) listNamespaces() []string {
	var list []string
	for _, t := range c.tasks {
		if !slices.Contains(list, t.Template.Namespace) {
			list = append(list, t.Template.Namespace)
		}
	}
	return list
}

// Maximum lengths in characters.
const (
	maxNamespace      = 128
	maxIdempotencyKey = 255
)

// check validates a request and returns its decoded context and the size of that context in bytes.
func check(r tasker.NewTask) (decoded any, contextSize int, err error) {
	var faults faults
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
		faults.checkText(f.path, f.text, f.most, f.needed)
	}
	if len(r.Tags) > 50 {
		faults.add("tags", "has %d tags; the limit is 50", len(r.Tags))
	}
	for i, tag := range r.Tags {
		faults.checkText(fmt.Sprintf("tags[%d]", i), tag, 128, true)
	}
	if r.Priority < -1000 || r.Priority > 1000 {
		faults.add("priority", "must be from -1000 to 1000, not %d", r.Priority)
	}
	faults.checkStart(r)
	if decoded, contextSize, err = payload.Decode(r.Context, payload.Limits{}); err != nil {
		return nil, 0, wrapPath("context", err)
	}
	if _, ok := decoded.(map[string]any); !ok {
		faults.add("context", "must be a JSON object")
	}
	return decoded, contextSize, faults.toError("the task cannot be created")
}

// checkText describes what is wrong with a short string, or returns "".
func checkText(s string, most int, needed bool) string {
	if needed && payload.IsBlank(s) {
		return "is missing"
	}
	return payload.CheckText(s, most)
}

// faults collects the errors in a request.
type faults []tasker.Fault

func (f *faults) add(path, format string, args ...any) {
	*f = append(*f, tasker.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
}

func (f *faults) checkText(path, s string, most int, needed bool) {
	if wrong := checkText(s, most, needed); wrong != "" {
		f.add(path, "%s", wrong)
	}
}

// toError returns nil if there are no faults. Otherwise it returns an Invalid whose message
// contains the first one and whose details contain all of them.
func (f faults) toError(message string) error {
	if len(f) == 0 {
		return nil
	}
	return tasker.Errorf(tasker.Invalid, "%s: %s", message, f[0]).WithDetails([]tasker.Fault(f))
}
