package engine

import (
	"context"
	"fmt"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/templatefile"
)

// graph is a template compiled for the environment of this server.
type graph struct {
	stored  tasker.StoredTemplate // with the overrides of this environment
	input   *templatefile.Input
	byName  map[string]int // index of each step
	cycle   []string
	parents [][]int       // indexes of the dependencies of each step
	rules   []tasker.Join // join rule of each step; empty if it runs once its dependencies are done
	exprs   []programs    // expressions of each step
	search  *search
	unique  *expression.Program // unique key; nil if there is none
	merges  *expression.Program // debounce key; nil if there is none
	due     *expression.Program // due time; nil if the template has no expression for it
	limits  []graphLimit
}

// programs contains the compiled expressions of a step by field.
type programs map[string]*expression.Program

func (e *Engine) newGraph(t tasker.StoredTemplate) (*graph, error) {
	input, err := templatefile.CompileInput(t.Namespace, t.InputSchema)
	if err != nil {
		return nil, err
	}
	t.Template = t.ForEnvironment(e.opts.Environment)
	g := &graph{stored: t, input: input, byName: make(map[string]int, len(t.Steps)), cycle: t.Cycle()}
	for i, s := range t.Steps {
		g.byName[s.Name] = i
	}
	for _, s := range t.Steps {
		parents := make([]int, len(s.Dependencies))
		for i, d := range s.Dependencies {
			parents[i] = g.byName[d]
		}
		g.parents = append(g.parents, parents)
	}
	if g.search, err = newSearch(t.Template, g.scope()); err != nil {
		return nil, err
	}
	for _, e := range []struct {
		path, text string
		kind       expression.Kind
		program    **expression.Program
	}{
		{"start.unique.key", t.Start.Unique.Key, expression.Text, &g.unique},
		{"start.debounce.key", t.Start.Debounce.Key, expression.Text, &g.merges},
		{expression.DueAt, t.Due.At, expression.Timestamp, &g.due},
	} {
		if e.text == "" {
			continue
		}
		if *e.program, err = expression.Compile(e.text, g.scope(), e.kind); err != nil {
			return nil, wrapPath(e.path, err)
		}
	}
	if g.limits, err = newLimits(t.Template, g.scope()); err != nil {
		return nil, err
	}
	if g.cycle == nil {
		if err := g.compileConditions(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// scope returns the names that expressions can use before a task has steps. Expressions of stored
// templates remain valid even if stricter rules apply to new ones.
func (g *graph) scope() expression.Scope {
	return expression.Scope{Input: g.stored.InputSchema, Stored: g.stored.UUID != tasker.ID{}}
}

// compileConditions determines the join rules of the steps and compiles their expressions.
func (g *graph) compileConditions() error {
	g.rules = make([]tasker.Join, len(g.stored.Steps))
	g.exprs = make([]programs, len(g.stored.Steps))
	names := mapSlice(g.stored.Steps, func(s tasker.StepTemplate) string { return s.Name })
	skippable := g.findSkippable(func(int) bool { return false })
	for i, s := range g.stored.Steps {
		g.rules[i] = g.joinRule(s, i, skippable)
		if err := g.compile(i, names); err != nil {
			return err
		}
	}
	return nil
}

// joinRule returns the join rule of a step. If steps are ordered by due time, every step with a
// handler has one, so that reports need not evaluate due times.
func (g *graph) joinRule(s tasker.StepTemplate, i int, skippable []bool) tasker.Join {
	rule := core.JoinRule(s, g.dependencies(i, func(p int) bool { return skippable[p] }))
	if rule == "" && g.stored.Order == tasker.OrderDue && s.HasHandler() {
		rule = tasker.JoinAll
	}
	return rule
}

func (g *graph) compile(i int, names []string) error {
	step := g.stored.Steps[i]
	if step.Type == tasker.MapStep && step.Over == "" { // set in all template files
		return tasker.Errorf(tasker.Invalid, "steps[%d].over: is missing", i)
	}
	var scope expression.Scope
	for _, e := range expression.SourcesOf(step) {
		if e.Text == "" {
			continue
		}
		if g.exprs[i] == nil {
			scope = g.scope()
			scope.Ancestors, scope.Steps = g.stored.Ancestors(step.Name), names
			g.exprs[i] = programs{}
		}
		p, err := expression.Compile(e.Text, scope, e.Kind)
		if err != nil {
			return wrapPath(fmt.Sprintf("steps[%d].%s", i, e.Key), err)
		}
		g.exprs[i][e.Key] = p
	}
	return nil
}

// findSkippable returns, for each step, whether it may be skipped. The function is reports steps
// that have already been skipped.
func (g *graph) findSkippable(is func(i int) bool) []bool {
	found, known := make([]bool, len(g.parents)), make([]bool, len(g.parents))
	var visit func(i int) bool
	visit = func(i int) bool {
		if known[i] {
			return found[i]
		}
		found[i], known[i] = is(i) || core.CanSkip(g.stored.Steps[i], g.dependencies(i, visit)), true
		return found[i]
	}
	for i := range g.parents {
		visit(i)
	}
	return found
}

func (g *graph) dependencies(step int, skippable func(int) bool) []core.Dependency {
	list := make([]core.Dependency, len(g.parents[step]))
	for n, p := range g.parents[step] {
		list[n] = core.Dependency{Skippable: skippable(p), Decision: g.stored.Steps[p].Type == tasker.DecisionStep}
	}
	return list
}

// size returns the approximate size of the graph in bytes: that of its source.
func (g *graph) size() int { return len(g.stored.Source) }

// loadGraph returns the compiled form of a stored template and caches it.
func (e *Engine) loadGraph(t tasker.StoredTemplate) (*graph, error) {
	if g, ok := e.creator.templates.get(t.UUID); ok {
		return g, nil
	}
	g, err := e.newGraph(t)
	if err != nil {
		return nil, err
	}
	e.creator.templates.put(t.UUID, g)
	return g, nil
}

// loadGraphByID returns the graph of a template. On a cache miss, it reads the template from a
// database or in a transaction, which then needs no second connection.
func (e *Engine) loadGraphByID(ctx context.Context, from templateReader, id tasker.ID) (*graph, error) {
	if g, ok := e.creator.templates.get(id); ok {
		return g, nil
	}
	t, err := from.TemplateByID(ctx, id)
	if err != nil {
		return nil, err
	}
	return e.loadGraph(t)
}

type templateReader interface {
	TemplateByID(ctx context.Context, id tasker.ID) (tasker.StoredTemplate, error)
}

// RegisterTemplate stores a template with its source and reports whether it is new. It returns a
// Conflict if tasks use the version and its content differs.
func (e *Engine) RegisterTemplate(ctx context.Context, t tasker.Template, source string) (tasker.StoredTemplate, bool, error) {
	if _, err := e.newGraph(tasker.StoredTemplate{Template: t}); err != nil {
		return tasker.StoredTemplate{}, false, err
	}
	if err := e.checkCycle(ctx, t); err != nil {
		return tasker.StoredTemplate{}, false, err
	}
	return e.db.PutTemplate(postgres.WithConnClass(ctx, postgres.Creates), t, source, templatefile.Checksum(t), e.opts.Quotas)
}

// newSteps returns the steps of a new task. If started is set, those that are ready are enqueued.
func (g *graph) newSteps(started bool) []postgres.CreatedStep {
	list := make([]postgres.CreatedStep, len(g.stored.Steps))
	for i, s := range g.stored.Steps {
		list[i] = postgres.CreatedStep{StepTemplate: s, UUID: tasker.NewID(), State: tasker.StepPending, Finds: g.search.steps[s.Name]}
		if g.cycle == nil {
			list[i].JoinRule = g.rules[i]
		}
		if started && len(g.parents[i]) == 0 && s.HasHandler() && list[i].JoinRule == "" {
			list[i].State = tasker.StepEnqueued
		}
	}
	for i, parents := range g.parents {
		for _, p := range parents {
			list[i].Parents = append(list[i].Parents, list[p].UUID)
			list[p].Children = append(list[p].Children, list[i].UUID)
		}
	}
	return list
}

// StepTemplate returns a step of a template, with the overrides of this environment, and its
// position.
func (e *Engine) StepTemplate(ctx context.Context, template tasker.ID, name string) (tasker.StepTemplate, int, error) {
	return e.findStepTemplate(ctx, e.db, template, name)
}

// findStepTemplate is [Engine.StepTemplate], but can read within a transaction.
func (e *Engine) findStepTemplate(ctx context.Context, from templateReader, template tasker.ID, name string) (tasker.StepTemplate, int, error) {
	g, err := e.loadGraphByID(ctx, from, template)
	if err != nil {
		return tasker.StepTemplate{}, 0, err
	}
	step, place, ok := g.findStep(name)
	if !ok {
		return tasker.StepTemplate{}, 0, tasker.Errorf(tasker.NotFound, "template %s has no step %q", g.stored.UUID, name)
	}
	return step, place, nil
}

// findStep returns a step by name and its position. An item or compensation step has the position
// of the step that it belongs to.
func (g *graph) findStep(name string) (s tasker.StepTemplate, place int, ok bool) {
	if place, ok = g.byName[tasker.TemplateName(name)]; ok {
		return g.stored.Steps[place], place, true
	}
	undone, isUndo := strings.CutPrefix(name, tasker.UndoPrefix)
	if place, ok = g.byName[undone]; !ok || !isUndo {
		return s, 0, false
	}
	s, ok = g.stored.Steps[place].Undo()
	return s, place, ok
}
