package templatefile

import (
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
)

// checkLimits notes what is wrong with the limits of a template, whose steps are right.
func (v value) checkLimits(t *tasker.Template) {
	byName := make(map[string]tasker.StepTemplate, len(t.Steps))
	for _, s := range t.Steps {
		byName[s.Name] = s
	}
	for i, place := range v.items() {
		l := t.Limits[i]
		if slices.ContainsFunc(t.Limits[:i], func(o tasker.LimitTemplate) bool { return o.Name == l.Name }) {
			place.fault("the template gives limit %s twice", quote(l.Name))
		}
		value := l.Value()
		if err := value.Check(); err != nil {
			place.fault("%s", err)
		}
		place.checkExpression(expression.Source{Key: "key", Text: l.Key, Kind: expression.Any}, expression.Scope{Input: t.InputSchema, Search: true})
		steps, _ := place.get("steps")
		for n, name := range steps.items() {
			switch s, ok := byName[l.Steps[n]]; {
			case !ok:
				name.fault("the template has no step %s", quote(l.Steps[n]))
			case !s.HasHandler():
				name.fault("no worker executes step %s: a limit is of steps that workers execute", quote(s.Name))
			}
		}
	}
}
