package templatefile

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/suggest"
)

// These checks cover how the parts of a template fit together, which a schema cannot express. The
// template may already have faults, but its lists are as long as those of the document.

// graph contains the steps of a template by name.
type graph struct {
	names []string
	steps map[string]node
}

type node struct {
	tasker.StepTemplate
	place value
}

// checkMeaning records a fault for each contradiction in a template.
func (v value) checkMeaning(t *tasker.Template) {
	if schema, ok := v.get("input_schema"); ok && schema.node.Kind == yaml.MappingNode {
		schema.checkInputSchema(t.InputSchema)
	}
	if triage, ok := v.get("triage"); ok {
		triage.checkTriage()
	}
	if v.faults.incomplete {
		return
	}
	g := graph{steps: map[string]node{}}
	if steps, ok := v.get("steps"); ok && len(steps.items()) == len(t.Steps) {
		g = steps.checkSteps(t.Steps)
	}
	v.checkConditions(t)
	environments, _ := v.get("environments")
	for name, environment := range environments.members() {
		environment.checkOverride(t.Environments[name.Value], g)
	}
}

// checkTriage records a fault for each duplicate key.
func (v value) checkTriage() {
	keys, _ := v.get("keys")
	seen := map[string]bool{}
	for _, key := range keys.items() {
		if seen[key.node.Value] {
			key.addFault("duplicate %s", quoteText(key.node.Value))
		}
		seen[key.node.Value] = true
	}
}

// checkSteps checks the steps and the graph of their dependencies.
func (v value) checkSteps(steps []tasker.StepTemplate) graph {
	g := graph{steps: map[string]node{}}
	edges := 0
	items := v.items()
	for i, s := range steps {
		edges += len(s.Dependencies)
		g.add(s, items[i])
		items[i].checkRetry(s.Retry)
		if undo, ok := items[i].get("on_failure"); ok && s.OnFailure != nil {
			undo.checkRetry(s.OnFailure.Retry)
		}
	}
	if edges > tasker.MaxEdges {
		v.addFault("has %d dependencies; the limit is %d", edges, tasker.MaxEdges)
		return graph{}
	}
	known := len(v.faults.list)
	for i, s := range steps {
		if dependencies, ok := items[i].get("dependencies"); ok {
			steps[i].Dependencies = g.checkEdges(s, dependencies.items())
		}
	}
	if len(v.faults.list) == known {
		g.checkCycle(steps)
	}
	for i, s := range steps {
		steps[i].Type = items[i].checkConvergence(s)
		steps[i].Join = items[i].readJoin(s, g)
		items[i].checkBatches(&steps[i], s.Type, g, steps)
		items[i].checkJoin(s)
		items[i].checkDecision(s, g, steps)
		items[i].checkExternal(s)
		items[i].checkWait(s)
		items[i].checkChild(s)
		items[i].checkMap(s)
	}
	return g
}

func (v value) checkRetry(r tasker.Retry) {
	retry, _ := v.get("retry")
	if _, written := retry.get("backoff_base_ms"); written {
		retry.checkBackoff(r)
	}
}

// checkJoin records a fault for a join that has no effect.
func (v value) checkJoin(s tasker.StepTemplate) {
	join, ok := v.get("join")
	if !ok || !isText(join.node) || s.Join == "" {
		return
	}
	switch {
	case len(s.Dependencies) == 0:
		join.addFault("the step has no dependencies to join")
	case s.Join == tasker.JoinAny && len(s.Dependencies) == 1:
		join.addFault("any has no effect with a single dependency: remove it")
	}
}

// checkDecision records a fault for a decision without dependent steps, and for a step that does
// not wait for its decision.
func (v value) checkDecision(s tasker.StepTemplate, g graph, steps []tasker.StepTemplate) {
	isAfter := func(o tasker.StepTemplate) bool { return slices.Contains(o.Dependencies, s.Name) }
	if kind, ok := v.get("type"); ok && s.Type == tasker.DecisionStep && !slices.ContainsFunc(steps, isAfter) {
		kind.addFault("no step depends on the decision, so it has no effect")
	}
	join, ok := v.get("join")
	if !ok || s.Join != tasker.JoinAny {
		return
	}
	for _, name := range s.Dependencies {
		if g.steps[name].Type == tasker.DecisionStep {
			join.addFault("any would not wait for decision %s, which decides whether the step runs", name)
			return
		}
	}
}

// noRetry explains why an external step cannot have a retry policy.
const noRetry = "an external step cannot have retry: its outcome is reported once; a reset makes it wait again"

// checkExternal records a fault for each contradiction in an external step.
func (v value) checkExternal(s tasker.StepTemplate) {
	if s.Type != tasker.ExternalStep {
		return
	}
	v.checkNoRetry(s, noRetry)
	outcome, hasOutcome := v.get("on_timeout")
	result, hasResult := v.get("timeout_result")
	switch {
	case hasOutcome && s.TimeoutSeconds == 0:
		outcome.addFault("missing timeout: add timeout_seconds")
	case hasResult && s.OnTimeout != tasker.TimeoutCompletes:
		result.addFault("is only allowed with on_timeout: complete")
	case s.OnTimeout == tasker.TimeoutCompletes && !hasResult:
		outcome.addFault("missing result for on_timeout: complete: add timeout_result")
	}
	v.checkReminders(s)
	v.checkPerson(s)
}

// checkReminders records a fault unless the reminders are in ascending order and before the
// timeout.
func (v value) checkReminders(s tasker.StepTemplate) {
	list, ok := v.get("remind_after_seconds")
	if !ok || len(list.items()) != len(s.RemindAfterSeconds) {
		return
	}
	for i, item := range list.items() {
		switch after := s.RemindAfterSeconds[i]; {
		case i > 0 && after <= s.RemindAfterSeconds[i-1]:
			item.addFault("must be greater than the previous value, %d", s.RemindAfterSeconds[i-1])
		case s.TimeoutSeconds > 0 && after >= s.TimeoutSeconds:
			item.addFault("must be less than timeout_seconds, which is %d", s.TimeoutSeconds)
		}
	}
}

func (v value) checkNoRetry(s tasker.StepTemplate, why string) {
	if retry, ok := v.get("retry"); ok && s.Retry != tasker.DefaultRetry() { // printed templates contain the default
		retry.addFault("%s", why)
	}
}

// waitRetry explains why a wait step cannot have a retry policy.
const waitRetry = "a step of type wait cannot have retry: it cannot fail"

// checkWait records a fault for each contradiction in a wait step.
func (v value) checkWait(s tasker.StepTemplate) {
	if s.Type != tasker.WaitStep {
		return
	}
	v.checkNoRetry(s, waitRetry)
	_, length := v.get("wait_seconds")
	until, instant := v.get("wait_until")
	switch {
	case length && instant:
		until.addFault("conflicts with wait_seconds: keep only one of them")
	case !length && !instant:
		v.addFault("missing wait time: add wait_seconds or wait_until")
	}
}

// childRetry explains why a child step cannot have a retry policy.
const childRetry = "a step of type child cannot have retry: the steps of its child task are retried; " +
	"a reset starts another child"

// checkChild records a fault for each contradiction in a child step.
func (v value) checkChild(s tasker.StepTemplate) {
	if s.Type != tasker.ChildStep {
		return
	}
	v.checkNoRetry(s, childRetry)
	if template, ok := v.get("template"); ok {
		if version, ok := template.get("version"); ok && isText(version.node) && s.Child.Version != "" &&
			!documentSchema.Properties["version"].Pattern.MatchString(s.Child.Version) {
			version.addFault("must be newest or a semantic version such as 1.0.0")
		}
	}
	result, hasResult := v.get("child_result")
	outcomes, _ := v.get("on_child")
	completes := s.OnChild.Cancelled == tasker.ChildCompletes || s.OnChild.PermanentlyFailed == tasker.ChildCompletes
	switch {
	case hasResult && !completes:
		result.addFault("is only allowed with complete in on_child")
	case completes && !hasResult:
		outcomes.addFault("missing result for complete in on_child: add child_result")
	}
}

// checkMap records a fault for each key that only map steps may have, and for each that a map step
// lacks.
func (v value) checkMap(s tasker.StepTemplate) {
	over, has := v.get("over")
	if undo, ok := v.get("on_failure"); ok && s.Type == tasker.MapStep {
		undo.addFault("a step of type map cannot have on_failure: its completed items could not be compensated")
	}
	switch {
	case s.Type == tasker.MapStep && !has:
		v.addFault("missing list: add over")
	case s.Type != tasker.MapStep && has:
		over.addFault("only a step of type map can have over")
	}
	for _, key := range []string{"chunk", "max_parallel", "tolerate"} {
		if of, has := v.get(key); has && s.Type != tasker.MapStep {
			of.addFault("only a step of type map can have %s", key)
		}
	}
}

// checkConditions compiles the expressions of a template that has no faults so far.
func (v value) checkConditions(t *tasker.Template) {
	steps, ok := v.get("steps")
	if !ok || len(v.faults.list) > 0 || len(steps.items()) != len(t.Steps) {
		return
	}
	names := make([]string, len(t.Steps))
	for i, s := range t.Steps {
		names[i] = s.Name
	}
	if search, ok := v.get("search"); ok {
		search.checkSearch(t, names)
	}
	if start, ok := v.get("start"); ok {
		start.checkStart(t)
	}
	if due, ok := v.get("due"); ok {
		due.checkDue(&t.Due, expression.Scope{Input: t.InputSchema}, false)
	}
	if limits, ok := v.get("limits"); ok {
		limits.checkLimits(t)
	}
	for i, place := range steps.items() {
		s := t.Steps[i]
		scope := expression.Scope{Input: t.InputSchema, Ancestors: t.Ancestors(s.Name), Steps: names}
		for _, e := range expression.SourcesOf(s) {
			place.checkExpression(e, scope)
		}
		if due, ok := place.get("due"); ok {
			due.checkDue(&t.Steps[i].Due, scope, true)
		}
	}
}

func (v value) checkExpression(e expression.Source, scope expression.Scope) {
	place, written := v.get(e.Key)
	if !written {
		return
	}
	if _, err := expression.Compile(e.Text, scope, e.Kind); err != nil {
		place.addFault("%s", err)
	}
}

func (g *graph) add(s tasker.StepTemplate, place value) {
	if s.Name == "" {
		return
	}
	if first, duplicate := g.steps[s.Name]; duplicate {
		place.addFault("duplicate step name %s; first in line %d", quoteText(s.Name), first.place.node.Line)
		return
	}
	g.names = append(g.names, s.Name)
	g.steps[s.Name] = node{s, place}
}

// checkEdges returns the valid dependencies of a step and records faults for the others.
func (g *graph) checkEdges(step tasker.StepTemplate, places []value) []string {
	var names []string
	for i, name := range step.Dependencies {
		switch _, exists := g.steps[name]; {
		case !isText(places[i].node): // rejected by the schema
		case name == step.Name:
			places[i].addFault("the step depends on itself")
		case !exists:
			places[i].addFault("unknown step %s%s", quoteText(name), places[i].formatSuggestion(name, g.names))
		case slices.Contains(names, name):
			places[i].addFault("depends on %s twice", quoteText(name))
		default:
			names = append(names, name)
		}
	}
	return names
}

// checkCycle records a fault for one dependency cycle, because none of its steps could run. An
// arrow means "depends on".
func (g *graph) checkCycle(steps []tasker.StepTemplate) {
	if cycle := (tasker.Template{Steps: steps}).Cycle(); cycle != nil {
		g.steps[cycle[0]].place.addFault("steps form a dependency cycle: %s", strings.Join(cycle, " -> "))
	}
}

// checkBackoff records a fault if the base exceeds the maximum backoff. It reports whether it does.
func (v value) checkBackoff(r tasker.Retry) bool {
	if r.BaseMS <= r.MaxBackoffMS {
		return false
	}
	v.addFault("backoff_base_ms %d is greater than max_backoff_ms %d: raise max_backoff_ms",
		r.BaseMS, r.MaxBackoffMS)
	return true
}

// checkOverride checks the step overrides of one environment. If g is empty, it does not check step
// names.
func (v value) checkOverride(o tasker.Override, g graph) {
	steps, ok := v.get("steps")
	if !ok || len(steps.items()) != len(o.Steps) {
		return
	}
	lines := map[string]int{}
	for i, place := range steps.items() {
		s := o.Steps[i]
		if line, duplicate := lines[s.Name]; duplicate && s.Name != "" {
			place.addFault("duplicate change of step %s; first in line %d", quoteText(s.Name), line)
			continue
		}
		lines[s.Name] = place.node.Line
		place.checkStepOverride(s, g)
	}
}

func (v value) checkStepOverride(o tasker.StepOverride, g graph) {
	name, named := v.get("name")
	if _, exists := g.steps[o.Name]; named && isText(name.node) && !exists && o.Name != tasker.AllSteps && len(g.steps) > 0 {
		name.addFault("unknown step %s%s", quoteText(o.Name),
			name.formatSuggestion(o.Name, append([]string{tasker.AllSteps}, g.names...)))
	}
	handler, _ := v.get("handler")
	_, long := handler.get("initialization")
	if short, ok := v.get("initialization"); ok && long {
		short.addFault("conflicts with handler.initialization: keep only one of them")
	}
	switch g.steps[o.Name].Type {
	case tasker.ExternalStep:
		v.checkNoOverride(o, "an external step", noRetry)
	case tasker.StandardStep, tasker.DecisionStep, tasker.MapStep:
	case tasker.ChildStep:
		v.checkNoOverride(o, "a step of type child", childRetry)
		if timeout, ok := v.get("timeout_seconds"); ok {
			timeout.addFault("a step of type child cannot have timeout_seconds: its child task has its own limits")
		}
	case tasker.WaitStep:
		v.checkNoOverride(o, "a step of type wait", waitRetry)
		if timeout, ok := v.get("timeout_seconds"); ok {
			timeout.addFault("a step of type wait cannot have timeout_seconds: use wait_seconds or wait_until")
		}
	}
	retry, ok := v.get("retry")
	if !ok || o.Retry == nil || o.Retry.BaseMS == nil {
		return
	}
	for _, step := range g.names {
		r := g.steps[step].Retry
		if o.Retry.MaxBackoffMS != nil {
			r.MaxBackoffMS = *o.Retry.MaxBackoffMS
		}
		applies := o.Name == tasker.AllSteps || o.Name == step
		if r.BaseMS = *o.Retry.BaseMS; applies && retry.checkBackoff(r) {
			return // one fault is enough
		}
	}
}

// checkNoOverride records a fault for each override that has no effect because no worker executes
// the step.
func (v value) checkNoOverride(o tasker.StepOverride, kind, retries string) {
	if len(o.Initialization) > 0 {
		v.addFault("%s is %s, which has no handler to initialize", quoteText(o.Name), kind)
	}
	if retry, ok := v.get("retry"); ok {
		retry.addFault("%s", retries)
	}
}

// formatSuggestion returns the end of a fault about an unknown step, with the nearest known name,
// or "".
func (v value) formatSuggestion(name string, known []string) string {
	if v.faults.isFull() {
		return "" // do not search: the fault is not listed
	}
	return suggest.Ending(name, known)
}

// formatList joins words as in "a, b or c".
func formatList(words []string) string {
	last := len(words) - 1
	if last <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

var (
	namePattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	shortVersion = regexp.MustCompile(`^v?\d+(\.\d+)?$`)
)

// reportInvalidVersion records a fault that explains why a value is not a semantic version.
func (v value) reportInvalidVersion() {
	version, s := documentSchema.Properties["version"], v.node.Value
	switch {
	case isNumber(v.node):
		v.addFault("must be a semantic version such as 1.0.0, but %s is read as a number: put all three parts in "+
			"quotes: %s",
			quoteText(s), completeVersion(s))
	case isText(v.node) && shortVersion.MatchString(s):
		v.addFault("must be a semantic version with all three parts, such as %s", completeVersion(s))
	case isText(v.node) && version.Pattern.MatchString(strings.TrimPrefix(s, "v")):
		v.addFault("must be a semantic version of at most %d characters without a leading v", *version.MaxLength)
	default:
		v.reportWrongType("a semantic version such as 1.0.0")
	}
}

// completeVersion returns the full form of a short version such as 1.0, in quotes.
func completeVersion(s string) string {
	if !shortVersion.MatchString(s) {
		return `"1.0.0"`
	}
	s = strings.TrimPrefix(s, "v")
	for strings.Count(s, ".") < 2 {
		s += ".0"
	}
	return `"` + s + `"`
}
