// Package explain determines why a task, step, investigation, case, operation, hold or queue is not
// progressing, and who has to act next.
//
// The reasons are rules in one list, and the first rule that matches counts. A task is explained by its
// open steps that wait for no other step, and an investigation by its task. A case or an operation is
// explained by a sample of its tasks, counted by reason. Nothing is stored. The data is read by key in a
// few statements, and times are compared with the database clock.
//
// If no rule matches, the engine or the list has a defect. This is logged and counted.
package explain

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/postgres"
)

// Options configures a Service. The zero value uses the defaults.
type Options struct {
	Log     *slog.Logger
	Unknown func(context.Context) // called for each task or step that no rule explains; optional
}

// Service explains why objects do not progress. It is safe for concurrent use.
type Service struct {
	db      *postgres.DB
	log     *slog.Logger
	unknown func(context.Context)
}

// New returns a service on a database with the current schema.
func New(db *postgres.DB, o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Unknown == nil {
		o.Unknown = func(context.Context) {}
	}
	return &Service{db: db, log: o.Log, unknown: o.Unknown}
}

// Explain explains the task, step, investigation, case, operation or hold with this id. It returns
// NotFound if there is none that the caller may see.
func (s *Service) Explain(ctx context.Context, id tasker.ID) (tasker.Explanation, error) {
	of, err := s.db.FindExplained(ctx, id)
	if err != nil {
		return tasker.Explanation{}, err
	}
	scope := access.ScopeFromContext(ctx)
	if of == nil || slices.ContainsFunc(of.Namespaces, func(n string) bool { return !scope.Has(n) }) {
		return tasker.Explanation{}, tasker.Errorf(tasker.NotFound, "%s %s not found", access.ExplainedKind, id)
	}
	if of.Kind != tasker.ExplainedTask && of.Kind != tasker.ExplainedStepOfTask && of.Kind != tasker.ExplainedHold {
		caller := access.IdentityFromContext(ctx)
		if slices.ContainsFunc(of.Namespaces, func(n string) bool {
			return !caller.HasPermission(access.ReadInvestigations,
				n)
		}) {
			return tasker.Explanation{}, caller.CheckPermission(access.ReadInvestigations, of.Namespaces...)
		}
	}
	e := tasker.Explanation{Kind: of.Kind, ID: tasker.OptionalID{ID: id}, Namespaces: of.Namespaces, TaskUUID: of.TaskUUID, AsOf: of.AsOf}
	switch of.Kind {
	case tasker.ExplainedStepOfTask:
		err = s.explainStep(ctx, &e, *of)
	case tasker.ExplainedCase:
		err = s.explainCase(ctx, &e)
	case tasker.ExplainedOperation:
		err = s.explainOperation(ctx, &e)
	case tasker.ExplainedHold:
		err = s.explainHold(ctx, &e)
	default:
		err = s.explainTask(ctx, &e, *of)
	}
	if err != nil {
		return tasker.Explanation{}, err
	}
	return withLists(e), nil
}

// withLists returns e with empty lists instead of nil.
func withLists(e tasker.Explanation) tasker.Explanation {
	e.Namespaces, e.Facts = append([]string{}, e.Namespaces...), append([]tasker.ExplainedFact{}, e.Facts...)
	e.Steps, e.Counts = append([]tasker.ExplainedStep{}, e.Steps...), append([]tasker.ReasonCount{}, e.Counts...)
	return e
}

func visibilityIn(ctx context.Context, namespace string) visibility {
	return visibility{payloads: access.PayloadScopeFromContext(ctx).Has(namespace), investigations: access.IdentityFromContext(ctx).HasPermission(access.ReadInvestigations, namespace)}
}

// maxErrors limits how many steps of a task are explained with their errors, because redacting
// errors is slow.
const maxErrors = 10

// maxShownSteps limits the steps that the explanation of a task lists.
const maxShownSteps = 20

func (s *Service) explainTask(ctx context.Context, e *tasker.Explanation, of postgres.Explained) error {
	t, steps, err := s.loadTask(ctx, postgres.ExplainedTasks{Tasks: []tasker.ID{of.TaskUUID.ID}, Steps: tasker.MaxExplainedSteps, Errors: maxErrors})
	if err != nil {
		return err
	}
	main := steps[0]
	e.AsOf, e.Name, e.Condition, e.Facts, e.More = t.AsOf, t.TaskName, main.condition(), main.listFacts(), t.More
	if len(t.Steps) > 0 {
		e.Looked, e.Counts = len(steps), countReasons(steps)
		for _, f := range steps[:min(len(steps), maxShownSteps)] {
			e.Steps = append(e.Steps, tasker.ExplainedStep{UUID: f.step.StepUUID, Name: f.step.StepName, State: f.step.StepState, Condition: f.condition()})
		}
	}
	if of.Kind == tasker.ExplainedInvestigation {
		addInvestigation(e, of, t)
	}
	return nil
}

// addInvestigation turns the explanation of a task into that of one of its investigations.
func addInvestigation(e *tasker.Explanation, of postgres.Explained, t postgres.ExplainedTask) {
	switch {
	case of.EndedAs != "":
		e.Facts = append(e.Facts, tasker.ExplainedFact{Name: "task", Value: e.Message})
		e.Condition = tasker.Condition{Reason: tasker.ConditionEnded, Since: of.EndedAt, NextActor: tasker.NextNone,
			Message: "The investigation ended as " + of.EndedAs + " at " + formatOptionalTime(of.EndedAt) +
				formatActor(of.EndedBy) + "."}
	case t.TaskState == tasker.TaskComplete || t.TaskState == tasker.TaskCancelled:
		e.Message = strings.TrimSuffix(e.Message, ".") + ", and the investigation is still open."
		e.NextActor, e.Remedy = tasker.NextOperator, "End the investigation."
	}
}

func (s *Service) explainStep(ctx context.Context, e *tasker.Explanation, of postgres.Explained) error {
	t, steps, err := s.loadTask(ctx, postgres.ExplainedTasks{
		Tasks: []tasker.ID{of.TaskUUID.ID}, Steps: tasker.MaxSteps, Ancestors: true, Step: of.StepUUID, Errors: maxErrors,
	})
	if err != nil {
		return err
	}
	f := steps[0]
	e.AsOf, e.Condition, e.Facts = t.AsOf, f.condition(), f.listFacts()
	if f.step != nil {
		e.Name = f.step.StepName
	}
	return nil
}

// loadTask explains a single task by its requested step, or by the steps that wait for no other
// step. It returns the matches in the order of the rules, at least one.
func (s *Service) loadTask(ctx context.Context, q postgres.ExplainedTasks) (postgres.ExplainedTask, []match, error) {
	upTo := int64(tasker.MaxExplainedQueue)
	q.CaseUpTo = &upTo
	tasks, err := s.db.ExplainTasks(ctx, q)
	if err != nil {
		return postgres.ExplainedTask{}, nil, err
	}
	if len(tasks) == 0 { // deleted in the meantime
		return postgres.ExplainedTask{}, nil, tasker.Errorf(tasker.NotFound, "task %s not found", q.Tasks[0])
	}
	t := &tasks[0]
	var views []view
	if q.Step == nil {
		views = newViews(ctx, t)
	} else {
		views = newStepView(ctx, t, *q.Step)
	}
	if err := s.loadQueues(ctx, views); err != nil {
		return postgres.ExplainedTask{}, nil, err
	}
	if err := s.loadChildren(ctx, views, tasker.MaxChildDepth); err != nil {
		return postgres.ExplainedTask{}, nil, err
	}
	if t.ParentUUID != nil {
		above, err := s.db.Ancestors(ctx, t.TaskUUID)
		if err != nil {
			return postgres.ExplainedTask{}, nil, err
		}
		for i := range views {
			views[i].above = above
		}
	}
	if q.Step != nil {
		return *t, []match{s.decideStep(ctx, views)}, nil
	}
	return *t, s.decideAll(ctx, views), nil
}

// newViews returns a view of each step that was read, or a view of the task if no step was read.
func newViews(ctx context.Context, t *postgres.ExplainedTask) []view {
	all := view{now: t.AsOf, task: t, shows: visibilityIn(ctx, t.Namespace)}
	if len(t.Steps) == 0 {
		return []view{all}
	}
	views := make([]view, len(t.Steps))
	for i := range t.Steps {
		views[i] = all
		views[i].step = &t.Steps[i]
	}
	return views
}

// newStepView returns a view of one step. If the step waits for other steps, views of its nearest
// open ancestors that wait for no step follow.
func newStepView(ctx context.Context, t *postgres.ExplainedTask, id tasker.ID) []view {
	all := newViews(ctx, t)
	byID := make(map[tasker.ID]view, len(all))
	for _, v := range all {
		if v.step != nil {
			byID[v.step.StepUUID] = v
		}
	}
	v, ok := byID[id]
	if !ok {
		return all[:1]
	}
	views, seen, level := []view{v}, map[tasker.ID]bool{id: true}, v.step.ParentUUIDs
	for len(level) > 0 && len(views) == 1 && !isOver(v.step.StepState) {
		var next []tasker.ID
		for _, p := range level {
			parent, open := byID[p]
			if !open || isOver(parent.step.StepState) || seen[p] {
				continue
			}
			seen[p] = true
			if hasNoOpenDependency(parent.step) {
				views = append(views, parent)
			}
			next = append(next, parent.step.ParentUUIDs...)
		}
		level = next
	}
	return views
}

// decideStep determines the reason why a step is not progressing, which may be the reason of its
// ancestors.
func (s *Service) decideStep(ctx context.Context, views []view) match {
	v := views[0]
	if len(views) > 1 {
		nearest := s.decideAll(ctx, views[1:])
		v.blocker, v.others = &nearest[0], len(nearest)-1
	}
	return s.decideAll(ctx, []view{v})[0]
}

// decideAll determines the reason for each view. It sorts the matches by rule and then by time,
// oldest first.
func (s *Service) decideAll(ctx context.Context, views []view) []match {
	list := make([]match, len(views))
	for i, v := range views {
		list[i] = decide(v)
		if list[i].why.Reason == tasker.ConditionUnknown {
			s.logUnknown(ctx, v)
		}
	}
	slices.SortStableFunc(list, func(a, b match) int {
		if a.rank != b.rank || a.why.Since == nil || b.why.Since == nil {
			return cmp.Compare(a.rank, b.rank)
		}
		return a.why.Since.Compare(*b.why.Since)
	})
	return list
}

func (s *Service) logUnknown(ctx context.Context, v view) {
	s.unknown(ctx)
	args := []any{"task", v.task.TaskUUID, "task_state", v.task.TaskState}
	if v.step != nil {
		args = append(args, "step", v.step.StepUUID, "step_state", v.step.StepState, "parents_open", v.step.ParentsOpen)
	}
	s.log.ErrorContext(ctx, "could not explain the state of a task", args...)
}

// Limits of the scan of queues.
const (
	maxQueues  = 100 // queues whose workers are read
	maxCounted = 10  // queues in which the steps before a step are counted
)

// loadQueues adds the queue of its step to each view.
func (s *Service) loadQueues(ctx context.Context, views []view) error {
	type pair struct{ namespace, handler string }
	places := map[pair]int{}
	var ask []postgres.ExplainedPlace
	for _, v := range views {
		if v.step == nil || v.step.StepState != tasker.StepEnqueued && v.step.AwaitsWorkerSince == nil {
			continue
		}
		p := pair{v.task.Namespace, v.step.Handler}
		if _, asked := places[p]; asked || len(ask) == maxQueues {
			continue
		}
		place := postgres.ExplainedPlace{Namespace: p.namespace, Handler: p.handler, Priority: v.step.Priority}
		if len(ask) < maxCounted && v.step.StepState == tasker.StepEnqueued {
			place.Since = &v.step.StepSince
		}
		places[p] = len(ask)
		ask = append(ask, place)
	}
	list, err := s.db.ExplainQueues(ctx, ask)
	if err != nil {
		return err
	}
	for i := range views {
		v := &views[i]
		if v.step == nil {
			continue
		}
		n, asked := places[pair{v.task.Namespace, v.step.Handler}]
		if !asked {
			continue
		}
		v.queue = &list[n]
		if at := ask[n]; at.Since != nil && at.Since.Equal(v.step.StepSince) && at.Priority == v.step.Priority {
			v.before = list[n].Before
		}
	}
	return nil
}

// countReasons counts the matches by reason, most frequent first.
func countReasons(list []match) (counts []tasker.ReasonCount) {
	for _, f := range list {
		i := slices.IndexFunc(counts, func(c tasker.ReasonCount) bool { return c.Reason == f.why.Reason })
		if i < 0 {
			i, counts = len(counts), append(counts, tasker.ReasonCount{Reason: f.why.Reason, Task: f.task.TaskUUID})
		}
		counts[i].Count++
	}
	slices.SortStableFunc(counts, func(a, b tasker.ReasonCount) int { return cmp.Compare(b.Count, a.Count) })
	return counts
}

// condition returns the condition with a complete sentence.
func (f match) condition() tasker.Condition {
	what := "The task"
	if f.task.Phase != "" {
		what = fmt.Sprintf("The task, which is being undone (%d of %s so far),", f.task.Undone, formatCount(int64(f.task.UndoSteps), "step"))
	}
	if f.step != nil && !f.ofTask {
		what = "Step " + f.step.StepName
	}
	w := f.why
	w.Message = what + " " + w.Message + "."
	return w
}
