package web

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
)

// stepsOf makes steps from "name: parent parent".
func stepsOf(lines ...string) []tasker.Step {
	ids := map[string]tasker.ID{}
	var steps []tasker.Step
	for _, line := range lines {
		name, after, _ := strings.Cut(line, ":")
		ids[name] = tasker.NewID()
		s := tasker.Step{UUID: ids[name], Name: name, State: tasker.StepPending, MaxAttempts: 3}
		for p := range strings.FieldsSeq(after) {
			s.Parents = append(s.Parents, ids[p])
		}
		steps = append(steps, s)
	}
	return steps
}

func TestGraphLayersFollowDependencies(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps []tasker.Step
		want  string
	}{
		{"nothing", nil, "[]"},
		{"one", stepsOf("a"), "[[a]]"},
		{"a row", stepsOf("a", "b: a", "c: b"), "[[a] [b] [c]]"},
		{"a diamond", stepsOf("a", "b: a", "c: a", "d: b c"), "[[a] [b c] [d]]"},
		{"the longest way counts", stepsOf("a", "b: a", "c: b", "d: a c"), "[[a] [b] [c] [d]]"},
		{"children stand where their parents do", stepsOf("a", "b", "x: b", "y: a"), "[[a b] [y x]]"},
		{"a parent that is not there", stepsOf("b: a"), "[[b]]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := [][]string{}
			for _, layer := range computeLayers(tt.steps) {
				var names []string
				for _, s := range layer {
					names = append(names, s.Name)
				}
				got = append(got, names)
			}
			if fmt.Sprint(got) != tt.want {
				t.Errorf("got %v, want %s", got, tt.want)
			}
		})
	}
}

// Steps of each type say what they are, skipped ones that they are; items are counted and have no
// nodes, and what undoes a step stands behind it.
func TestGraphNamesStepTypes(t *testing.T) {
	for kind, want := range map[tasker.StepType]string{
		tasker.StandardStep: "skipped", tasker.DecisionStep: "decision · skipped", tasker.ExternalStep: "external · skipped",
		tasker.WaitStep: "wait · skipped", tasker.ChildStep: "child task · skipped", tasker.MapStep: "1 of 3 items done",
	} {
		steps := stepsOf("a", "b: a", "a[0]")
		steps[1].Name = tasker.UndoPrefix + "a"
		steps[0].Type, steps[0].State = kind, tasker.StepSkipped
		if kind == tasker.MapStep {
			steps[0].Items = &tasker.ItemCounts{Total: 3, Completed: 1, Enqueued: 2}
		}
		steps[2].MapStepUUID = &steps[0].UUID
		g := drawGraph(steps, nil, nil)
		if len(g.Nodes) != 2 || g.Nodes[0].Line != want || g.Nodes[1].Name != "undo:a" || g.Nodes[1].X <= g.Nodes[0].X || len(g.Edges) != 1 {
			t.Errorf("of type %s the graph is %+v", kind, g)
		}
	}
}

// However wide its characters are, a name stays in its box.
func TestGraphNamesAreShortened(t *testing.T) {
	for name, want := range map[string]string{
		"charge_card": "charge_card", strings.Repeat("W", 128): "WWWWWWWWW…", strings.Repeat("i", 20): strings.Repeat("i", 20),
		"": "", "reserve_inventory": "reserve_inventory", strings.Repeat("収", 30): "収収収収収収収収収…",
	} {
		got := truncateToWidth(name, nodeText)
		if got != want {
			t.Errorf("%q is shown as %q, want %q", name, got, want)
		}
	}
}

// No template has one; the picture must not hang on it all the same.
func TestGraphOfADependencyCycle(t *testing.T) {
	steps := stepsOf("a", "b: a")
	steps[0].Parents = []tasker.ID{steps[1].UUID}
	if n := len(slices.Concat(computeLayers(steps)...)); n != 2 {
		t.Errorf("%d steps, want 2", n)
	}
}
