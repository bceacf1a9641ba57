package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"tasker.example/tasker"
)

// VersionStep is a step of a task that is to move to another version of its template.
type VersionStep struct {
	Name         string
	Type         tasker.StepType
	State        tasker.StepState
	Dependencies []string // names of the current dependencies
	Waits        bool     // pending, and waiting for an answer, a time, its child task or its items
	HasItems     bool     // it is a map step with items
	HasChild     bool     // it started a child task
}

// hasBegun reports whether the step has had effects that a change of version cannot revert.
func (s VersionStep) hasBegun() bool { return s.State != tasker.StepPending || s.Waits }

// isRunning reports whether a worker executes the step or its report is pending.
func (s VersionStep) isRunning() bool {
	return s.State == tasker.StepInProgress || s.State == tasker.StepEnqueuedForOrchestration
}

// Graph contains the steps of a template version.
type Graph []tasker.StepTemplate

// PlanVersionChange determines the effects of moving a task to another version of its template.
// Steps that have ended or are running keep their definitions. Other steps that have begun get the
// new definition if possible. Steps that have not begun follow the new version. The change contains
// refusals if it would contradict the recorded steps.
func PlanVersionChange(steps []VersionStep, from, to Graph) tasker.VersionChange {
	v := versionPlanner{from: stepsByName(from), to: stepsByName(to), now: map[string]VersionStep{},
		dependents: map[string][]string{}}
	for _, s := range steps {
		v.now[s.Name] = s
		for _, d := range s.Dependencies {
			v.dependents[d] = append(v.dependents[d], s.Name)
		}
	}
	for _, s := range steps {
		if n, ok := v.to[s.Name]; ok {
			v.addKept(s, n)
		} else {
			v.addRemoved(s)
		}
	}
	for _, s := range to {
		if _, ok := v.now[s.Name]; !ok {
			v.Added = append(v.Added, s.Name)
		}
	}
	if n := len(to) + len(v.Left); n > tasker.MaxSteps {
		v.addRefusal(tasker.RefusedTooManySteps, "", "the task would have %d steps, including %d that the new version "+
			"lacks: the limit is %d", n, len(v.Left), tasker.MaxSteps)
	}
	return v.VersionChange
}

// versionPlanner compares a task with a version of its template.
type versionPlanner struct {
	tasker.VersionChange
	from, to   map[string]tasker.StepTemplate
	now        map[string]VersionStep
	dependents map[string][]string // current dependents of each step
}

func stepsByName(g Graph) map[string]tasker.StepTemplate {
	all := make(map[string]tasker.StepTemplate, len(g))
	for _, s := range g {
		all[s.Name] = s
	}
	return all
}

func (v *versionPlanner) addRefusal(code tasker.VersionRefusalCode, step, format string, args ...any) {
	v.Refusals = append(v.Refusals, tasker.VersionRefusal{Code: code, Step: step, Message: fmt.Sprintf(format, args...)})
}

// addRemoved handles a step that the new version does not contain.
func (v *versionPlanner) addRemoved(s VersionStep) {
	switch {
	case !s.hasBegun():
		v.Removed = append(v.Removed, s.Name)
	case !s.State.Done():
		v.addRefusal(tasker.RefusedStepMissing, s.Name,
			"the new version has no step %s, which is %s: resolve it, or wait until it ends", s.Name, s.State)
	case s.State == tasker.StepComplete && v.from[s.Name].OnFailure != nil:
		v.addRefusal(tasker.RefusedUndoMissing, s.Name, "step %s is complete and can be compensated, but the new "+
			"version lacks it and could not compensate it", s.Name)
	default:
		v.Left = append(v.Left, s.Name)
	}
}

// addKept handles a step that the new version contains.
func (v *versionPlanner) addKept(s VersionStep, n tasker.StepTemplate) {
	o, known := v.from[s.Name]
	changed := !known || !sameStep(o, n)
	if s.hasBegun() {
		v.check(s, o, n, changed)
	}
	if changed && !s.State.Done() {
		v.Redefined = append(v.Redefined, s.Name)
	} else {
		v.Kept = append(v.Kept, s.Name)
	}
}

// check refuses changes that are impossible for a step that has begun.
func (v *versionPlanner) check(s VersionStep, o, n tasker.StepTemplate, changed bool) {
	if s.Type != n.Type {
		v.addRefusal(tasker.RefusedStepType, s.Name,
			"step %s is %s and has type %s, but type %s in the new version", s.Name, s.State, s.Type, n.Type)
		return
	}
	for _, d := range n.Dependencies {
		if slices.Contains(s.Dependencies, d) {
			continue
		}
		if p, ok := v.now[d]; !ok || p.State != tasker.StepComplete && p.State != tasker.StepResolvedManually || p.Type == tasker.DecisionStep {
			v.addRefusal(tasker.RefusedNewDependency, s.Name,
				"step %s is already %s, but depends on %s in the new version, which has not run", s.Name, s.State, d)
		}
	}
	switch {
	case s.State.Done():
		v.checkDone(s, o, n)
	case !changed:
	case s.isRunning():
		v.addRefusal(tasker.RefusedHeldByWorker, s.Name,
			"step %s is claimed by a worker, but the new version changes it: wait until it ends", s.Name)
	case s.HasItems:
		v.addRefusal(tasker.RefusedItems, s.Name,
			"step %s has already created its items, but the new version changes it", s.Name)
	case s.Waits:
		v.addRefusal(tasker.RefusedWaiting, s.Name, "step %s is already waiting, but the new version changes it: wait "+
			"until it ends, or end it manually", s.Name)
	case s.HasChild && o.Child != n.Child:
		v.addRefusal(tasker.RefusedChildTemplate, s.Name, "step %s has started a task of template %s, but the new "+
			"version starts one of template %s", s.Name, childTemplate(o), childTemplate(n))
	case s.State == tasker.StepEnqueued && (o.When != n.When || o.Join != n.Join):
		v.addRefusal(tasker.RefusedCondition, s.Name,
			"step %s is already enqueued, but the new version changes its condition or join", s.Name)
	}
}

// checkDone refuses changes that are impossible for a step that has ended.
func (v *versionPlanner) checkDone(s VersionStep, o, n tasker.StepTemplate) {
	if s.State == tasker.StepComplete && o.OnFailure != nil && n.OnFailure == nil {
		v.addRefusal(tasker.RefusedUndoMissing, s.Name,
			"step %s is complete and can be compensated, but the new version could not compensate it", s.Name)
	}
	if s.Type != tasker.DecisionStep || s.State == tasker.StepSkipped {
		return
	}
	var later []string
	for name, t := range v.to {
		if slices.Contains(t.Dependencies, s.Name) {
			later = append(later, name)
		}
	}
	now := slices.Sorted(slices.Values(v.dependents[s.Name]))
	if slices.Sort(later); !slices.Equal(now, later) {
		v.addRefusal(tasker.RefusedDecisionChanged, s.Name,
			"decision %s chose between %v, but %v depend on it in the new version", s.Name, now, later)
	}
}

func childTemplate(s tasker.StepTemplate) string {
	if s.Child.Version == "" {
		return s.Child.Name
	}
	return s.Child.Name + " " + s.Child.Version
}

// sameStep reports whether two steps are equal except for their descriptions.
func sameStep(a, b tasker.StepTemplate) bool {
	a.Description, b.Description = "", ""
	x, err := json.Marshal(a)
	y, failed := json.Marshal(b)
	return err == nil && failed == nil && bytes.Equal(x, y)
}
