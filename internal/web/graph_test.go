package web

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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

func TestStepsStandBehindWhatTheyDependOn(t *testing.T) {
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
			for _, layer := range layersOf(tt.steps) {
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

func TestADecisionSaysThatItIsOne(t *testing.T) {
	steps := stepsOf("a", "b: a")
	steps[0].Type = tasker.DecisionStep
	if g := drawGraph(steps, nil, nil); g.Nodes[0].Line != "decision · pending" || g.Nodes[1].Line != "pending" {
		t.Errorf("the nodes say %q and %q", g.Nodes[0].Line, g.Nodes[1].Line)
	}
}

// However wide its characters are, a name stays in its box.
func TestNamesFitTheirBoxes(t *testing.T) {
	for name, want := range map[string]string{
		"charge_card": "charge_card", strings.Repeat("W", 128): "WWWWWWWWW…", strings.Repeat("i", 20): strings.Repeat("i", 20),
		"": "", "reserve_inventory": "reserve_inventory", strings.Repeat("収", 30): "収収収収収収収収収…",
	} {
		got := fit(name, nodeText)
		if got != want {
			t.Errorf("%q is shown as %q, want %q", name, got, want)
		}
	}
}

// No template has one; the picture must not hang on it all the same.
func TestACircleEnds(t *testing.T) {
	steps := stepsOf("a", "b: a")
	steps[0].Parents = []tasker.ID{steps[1].UUID}
	if n := len(slices.Concat(layersOf(steps)...)); n != 2 {
		t.Errorf("%d steps, want 2", n)
	}
}

func TestAThousandStepsAreDrawn(t *testing.T) {
	steps := stepsOf("0")
	for i := 1; i < 1000; i++ {
		s := tasker.Step{UUID: tasker.NewID(), Name: fmt.Sprint(i), Parents: []tasker.ID{steps[i/3].UUID}}
		steps = append(steps, s)
	}
	start := time.Now()
	g := drawGraph(steps, &steps[5].UUID, nil)
	t.Logf("drawn in %v, %d by %d", time.Since(start), g.Width, g.Height)
	if len(g.Nodes) != 1000 || len(g.Edges) != 999 {
		t.Errorf("%d nodes, %d edges", len(g.Nodes), len(g.Edges))
	}
	marked := slices.DeleteFunc(g.Nodes, func(n node) bool { return !n.Marked })
	if len(marked) != 1 || marked[0].Name != "5" || !strings.HasSuffix(marked[0].Label(), "this one needs a human") {
		t.Errorf("marked %+v", marked)
	}
}
