package core_test

import (
	"fmt"
	"slices"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

func versionStep(name string, state tasker.StepState, dependencies ...string) core.VersionStep {
	return core.VersionStep{Name: name, Type: tasker.StandardStep, State: state, Dependencies: dependencies}
}

func graphStep(name string, dependencies ...string) tasker.StepTemplate {
	return tasker.StepTemplate{Name: name, Type: tasker.StandardStep, Dependencies: dependencies, Handler: tasker.Handler{Callable: "run"}, Retry: tasker.DefaultRetry()}
}

func with(s tasker.StepTemplate, change func(*tasker.StepTemplate)) tasker.StepTemplate {
	change(&s)
	return s
}

// What becomes of a step a, of which the two versions and where it stands are given.
func TestWhatBecomesOfAStepInAnotherVersion(t *testing.T) {
	t.Parallel()
	slower := func(s *tasker.StepTemplate) { s.TimeoutSeconds = 60 }
	undone := func(s *tasker.StepTemplate) { s.OnFailure = &tasker.OnFailure{Compensate: "undo"} }
	external := func(s *tasker.StepTemplate) { s.Type, s.Handler = tasker.ExternalStep, tasker.Handler{} }
	a := versionStep("a", tasker.StepPending)
	is := func(state tasker.StepState, change ...func(*core.VersionStep)) core.VersionStep {
		s := a
		s.State = state
		for _, c := range change {
			c(&s)
		}
		return s
	}
	waits := func(s *core.VersionStep) { s.Waits, s.Type = true, tasker.ExternalStep }
	decision := func(s *core.VersionStep) { s.Type = tasker.DecisionStep }
	decides := func(s *tasker.StepTemplate) { s.Type = tasker.DecisionStep }
	child := func(version string) tasker.StepTemplate {
		return tasker.StepTemplate{Name: "a", Type: tasker.ChildStep, Child: tasker.ChildTemplate{Name: "ship", Version: version}}
	}
	same := graphStep("a")
	for name, tt := range map[string]struct {
		now      core.VersionStep
		from, to core.Graph
		want     string // what becomes of the step, or the refusal
	}{
		"not begun, the same":              {a, core.Graph{same}, core.Graph{same}, "kept"},
		"not begun, changed":               {a, core.Graph{same}, core.Graph{with(same, slower)}, "redefined"},
		"only the description is changed":  {is(tasker.StepInProgress), core.Graph{same}, core.Graph{with(same, func(s *tasker.StepTemplate) { s.Description = "x" })}, "kept"},
		"not begun, another type":          {a, core.Graph{same}, core.Graph{with(same, external)}, "redefined"},
		"not begun, missing":               {a, core.Graph{same}, nil, "removed"},
		"enqueued, changed":                {is(tasker.StepEnqueued), core.Graph{same}, core.Graph{with(same, slower)}, "redefined"},
		"enqueued, missing":                {is(tasker.StepEnqueued), core.Graph{same}, nil, string(tasker.RefusedStepMissing)},
		"enqueued, another condition":      {is(tasker.StepEnqueued), core.Graph{same}, core.Graph{with(same, func(s *tasker.StepTemplate) { s.When = "false" })}, string(tasker.RefusedCondition)},
		"failed, changed":                  {is(tasker.StepError), core.Graph{same}, core.Graph{with(same, slower)}, "redefined"},
		"failed, another type":             {is(tasker.StepError), core.Graph{same}, core.Graph{with(same, external)}, string(tasker.RefusedStepType)},
		"with a worker, the same":          {is(tasker.StepInProgress), core.Graph{same}, core.Graph{same}, "kept"},
		"with a worker, changed":           {is(tasker.StepInProgress), core.Graph{same}, core.Graph{with(same, slower)}, string(tasker.RefusedHeldByWorker)},
		"with a worker, missing":           {is(tasker.StepInProgress), core.Graph{same}, nil, string(tasker.RefusedStepMissing)},
		"its report is kept, changed":      {is(tasker.StepEnqueuedForOrchestration), core.Graph{same}, core.Graph{with(same, slower)}, string(tasker.RefusedHeldByWorker)},
		"complete, changed":                {is(tasker.StepComplete), core.Graph{same}, core.Graph{with(same, slower)}, "kept"},
		"complete, missing":                {is(tasker.StepComplete), core.Graph{same}, nil, "left"},
		"skipped, missing":                 {is(tasker.StepSkipped), core.Graph{same}, nil, "left"},
		"complete, undone by nothing more": {is(tasker.StepComplete), core.Graph{with(same, undone)}, core.Graph{same}, string(tasker.RefusedUndoMissing)},
		"complete and undoable, missing":   {is(tasker.StepComplete), core.Graph{with(same, undone)}, nil, string(tasker.RefusedUndoMissing)},
		"resolved and undoable, missing":   {is(tasker.StepResolvedManually), core.Graph{with(same, undone)}, nil, "left"},
		"it waits, the same":               {is(tasker.StepPending, waits), core.Graph{with(same, external)}, core.Graph{with(same, external)}, "kept"},
		"it waits, changed":                {is(tasker.StepPending, waits), core.Graph{with(same, external)}, core.Graph{with(with(same, external), slower)}, string(tasker.RefusedWaiting)},
		"it waits, missing":                {is(tasker.StepPending, waits), core.Graph{with(same, external)}, nil, string(tasker.RefusedStepMissing)},
		"it has items, changed": {is(tasker.StepError, func(s *core.VersionStep) { s.Type, s.HasItems = tasker.MapStep, true }),
			core.Graph{with(same, func(s *tasker.StepTemplate) { s.Type = tasker.MapStep })},
			core.Graph{with(same, func(s *tasker.StepTemplate) { s.Type, s.Over = tasker.MapStep, "context.x" })}, string(tasker.RefusedItems)},
		"it has a child, of another template": {is(tasker.StepError, func(s *core.VersionStep) { s.Type, s.HasChild = tasker.ChildStep, true }),
			core.Graph{child("")}, core.Graph{child("2.0.0")}, string(tasker.RefusedChildTemplate)},
		"decided between others": {is(tasker.StepComplete, decision), core.Graph{with(same, decides)},
			core.Graph{with(same, decides), graphStep("b", "a")}, string(tasker.RefusedDecisionChanged)},
		"it has left already": {is(tasker.StepComplete), nil, nil, "left"},
		"it comes back":       {is(tasker.StepComplete), nil, core.Graph{same}, "kept"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := core.PlanVersionChange([]core.VersionStep{tt.now}, tt.from, tt.to)
			is := "nothing"
			for kind, names := range map[string][]string{"kept": got.Kept, "redefined": got.Redefined, "removed": got.Removed, "left": got.Left} {
				if slices.Contains(names, "a") {
					is = kind
				}
			}
			if len(got.Refusals) > 0 {
				is = string(got.Refusals[0].Code)
			}
			if is != tt.want || len(got.Refusals) > 1 {
				t.Errorf("it is %s, want %s: %+v", is, tt.want, got)
			}
		})
	}
}

// A step that has begun may come to depend on what has succeeded, and on nothing else; what it
// depends on already may be open, and what it does not depend on any more is forgotten.
func TestABegunStepGetsNoOpenDependency(t *testing.T) {
	t.Parallel()
	to := core.Graph{graphStep("p"), graphStep("a", "p")}
	for _, state := range tasker.StepStates() {
		for _, begun := range []tasker.StepState{tasker.StepEnqueued, tasker.StepInProgress, tasker.StepComplete, tasker.StepSkipped, tasker.StepError} {
			got := core.PlanVersionChange([]core.VersionStep{versionStep("p", state), versionStep("a", begun)}, core.Graph{graphStep("p"), graphStep("a")}, to)
			refused := slices.ContainsFunc(got.Refusals, func(r tasker.VersionRefusal) bool { return r.Code == tasker.RefusedNewDependency && r.Step == "a" })
			if want := state != tasker.StepComplete && state != tasker.StepResolvedManually; refused != want {
				t.Errorf("a is %s and p %s: refused %v, want %v", begun, state, refused, want)
			}
		}
	}
	missing := core.PlanVersionChange([]core.VersionStep{versionStep("a", tasker.StepComplete)}, core.Graph{graphStep("a")}, to)
	if len(missing.Refusals) != 1 || missing.Refusals[0].Code != tasker.RefusedNewDependency {
		t.Errorf("a new step before a complete one: %+v", missing)
	}
	decision := versionStep("p", tasker.StepComplete)
	decision.Type = tasker.DecisionStep
	d := graphStep("p")
	d.Type = tasker.DecisionStep
	got := core.PlanVersionChange([]core.VersionStep{decision, versionStep("a", tasker.StepEnqueued)}, core.Graph{d, graphStep("a")}, core.Graph{d, graphStep("a", "p")})
	if len(got.Refusals) != 2 { // of the decision and of the step
		t.Errorf("a begun step behind a decision: %+v", got)
	}
	dropped := core.PlanVersionChange([]core.VersionStep{versionStep("p", tasker.StepPending), versionStep("a", tasker.StepEnqueued, "p")},
		core.Graph{graphStep("p"), graphStep("a", "p")}, core.Graph{graphStep("p"), graphStep("a")})
	if len(dropped.Refusals) > 0 || !slices.Equal(dropped.Redefined, []string{"a"}) {
		t.Errorf("a dependency that goes: %+v", dropped)
	}
}

func TestATaskHasNoMoreStepsThanATemplateMayHave(t *testing.T) {
	t.Parallel()
	var now []core.VersionStep
	var to core.Graph
	for i := range tasker.MaxSteps {
		to = append(to, graphStep(fmt.Sprint("n", i)))
	}
	now = append(now, versionStep("old", tasker.StepComplete))
	got := core.PlanVersionChange(now, core.Graph{graphStep("old")}, to)
	if len(got.Refusals) != 1 || got.Refusals[0].Code != tasker.RefusedTooManySteps {
		t.Errorf("got %+v", got.Refusals)
	}
	if got := core.PlanVersionChange(now, core.Graph{graphStep("old")}, to[1:]); len(got.Refusals) > 0 || len(got.Added) != tasker.MaxSteps-1 {
		t.Errorf("got %+v", got.Refusals)
	}
}
