package templatefile

import (
	"slices"
	"strings"

	"tasker.example/tasker"
)

// A graph is the steps by name, with the places where they stand.
type graph struct {
	names []string
	steps map[string]node
}

type node struct {
	external bool
	retry    tasker.Retry
	place    value
}

// steps reads the list of steps and the graph that their dependencies make.
func (v value) steps() ([]tasker.StepTemplate, graph) {
	g := graph{steps: map[string]node{}}
	items := v.items()
	switch {
	case len(items) > tasker.MaxSteps:
		v.fault("%d steps; %d is the limit", len(items), tasker.MaxSteps)
		return nil, g
	case len(items) == 0 && len(v.faults.list) == 0:
		v.fault("a template needs at least one step")
	}
	steps := make([]tasker.StepTemplate, len(items))
	dependencies := make([][]value, len(items))
	edges := 0
	for i, item := range items {
		steps[i], dependencies[i] = item.step()
		edges += len(dependencies[i])
		g.add(steps[i], item)
	}
	if edges > tasker.MaxEdges {
		v.fault("%d dependencies; %d is the limit", edges, tasker.MaxEdges)
		return nil, g
	}
	known := len(v.faults.list)
	for i := range steps {
		steps[i].Dependencies = g.edges(steps[i].Name, dependencies[i])
	}
	if len(v.faults.list) == known {
		g.refuseCycle(steps)
	}
	return steps, g
}

func (g *graph) add(s tasker.StepTemplate, place value) {
	if s.Name == "" {
		return
	}
	if first, twice := g.steps[s.Name]; twice {
		place.fault("the step name %s is used twice; first in line %d", quote(s.Name), first.place.node.Line)
		return
	}
	g.names = append(g.names, s.Name)
	g.steps[s.Name] = node{external: s.Type == tasker.ExternalStep, retry: s.Retry, place: place}
}

// edges reads the dependencies of one step.
func (g *graph) edges(step string, dependencies []value) []string {
	var names []string
	for _, v := range dependencies {
		name, ok := v.text()
		if !ok {
			continue
		}
		switch _, exists := g.steps[name]; {
		case name == step:
			v.fault("the step depends on itself")
		case !exists:
			v.fault("unknown step %s%s", quote(name), suggest(v.faults, name, g.names))
		case slices.Contains(names, name):
			v.fault("depends on %s twice", quote(name))
		default:
			names = append(names, name)
		}
	}
	return names
}

// refuseCycle names one cycle: as long as there is one, none of its steps can
// ever run. An arrow reads "depends on".
func (g *graph) refuseCycle(steps []tasker.StepTemplate) {
	cycle := tasker.Template{Steps: steps}.Cycle()
	if cycle == nil {
		return
	}
	g.steps[cycle[0]].place.fault("steps depend on each other in a cycle: %s", strings.Join(cycle, " -> "))
}

// list spells words as "a, b or c".
func list(words []string) string {
	last := len(words) - 1
	if last <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
