package templatefile

import (
	"tasker.example/tasker"

	"go.yaml.in/yaml/v3"
)

// environments reads what each environment changes about the steps. g knows the
// steps; it is empty when they could not be read, and then names are not judged.
func (v value) environments(g graph) map[string]tasker.Override {
	if v.node.Kind != yaml.MappingNode {
		v.wrong("an object")
		return nil
	}
	environments := make(map[string]tasker.Override, len(v.node.Content)/2)
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key := v.node.Content[i]
		inside := v.member(key, v.node.Content[i+1])
		if !isName(key.Value) {
			value{node: key, path: v.path, faults: v.faults}.name()
			continue
		}
		environments[key.Value] = inside.override(g)
	}
	return environments
}

// override reads what one environment changes.
func (v value) override(g graph) tasker.Override {
	f, ok := v.fields("steps")
	if !ok {
		return tasker.Override{}
	}
	steps, ok := f.need("steps")
	if !ok {
		return tasker.Override{}
	}
	o := tasker.Override{Steps: []tasker.StepOverride{}}
	lines := map[string]int{}
	for _, item := range steps.items() {
		s := item.stepOverride(g)
		if line, twice := lines[s.Name]; twice && s.Name != "" {
			item.fault("the step %s is changed twice; first in line %d", quote(s.Name), line)
			continue
		}
		lines[s.Name] = item.node.Line
		o.Steps = append(o.Steps, s)
	}
	return o
}

func (v value) stepOverride(g graph) tasker.StepOverride {
	var o tasker.StepOverride
	f, ok := v.fields("name", "handler", "initialization", "timeout_seconds", "retry")
	if !ok {
		return o
	}
	if v, ok := f.need("name"); ok {
		o.Name = v.stepOrAll(g)
	}
	o.Initialization = f.overriddenInitialization()
	if len(o.Initialization) > 0 && g.steps[o.Name].external {
		v.fault("%s is an external step, which has no handler to initialize", quote(o.Name))
	}
	o.TimeoutSeconds = f.optionalInteger("timeout_seconds", 1, maxTimeoutSeconds)
	if v, ok := f.get("timeout_seconds"); ok && g.steps[o.Name].external {
		v.fault("%s", externalTimeout)
	}
	if v, ok := f.get("retry"); ok {
		r := v.retryOverride()
		v.refuseBackoffOf(o.Name, r, g)
		o.Retry = &r
	}
	return o
}

// refuseBackoffOf judges a changed backoff with what the steps that it changes
// say themselves. One fault is enough.
func (v value) refuseBackoffOf(name string, r tasker.RetryOverride, g graph) {
	for _, step := range g.names {
		if (name == tasker.AllSteps || name == step) && v.refuseUnreachableBackoff(r, g.steps[step].retry) {
			return
		}
	}
}

// stepOrAll reads the name of a step that the template has, or ALL.
func (v value) stepOrAll(g graph) string {
	name, ok := v.text()
	if !ok || name == tasker.AllSteps || len(g.steps) == 0 {
		return name
	}
	if _, exists := g.steps[name]; !exists {
		known := append([]string{tasker.AllSteps}, g.names...)
		v.fault("unknown step %s%s", quote(name), suggest(v.faults, name, known))
	}
	return name
}

// overriddenInitialization reads the initialization data where either spelling
// has it: below handler, as in the step itself, or without it.
func (f fields) overriddenInitialization() []byte {
	short, isShort := f.get("initialization")
	long, isLong := f.get("handler")
	if !isLong {
		return f.initialization()
	}
	handler, ok := long.fields("callable", "initialization")
	if !ok {
		return nil
	}
	if callable, ok := handler.get("callable"); ok {
		callable.fault("an environment cannot change the handler itself, only its initialization")
	}
	if _, ok := handler.get("initialization"); ok && isShort {
		short.fault("is given twice; keep this or handler.initialization")
		return nil
	}
	if isShort {
		return f.initialization()
	}
	return handler.initialization()
}
