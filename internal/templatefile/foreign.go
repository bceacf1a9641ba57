package templatefile

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// Keys that other workflow engines with the same templates know. What has no
// effect there, or asks for nothing, is accepted; the document is kept as it is
// written. What asks for something that we do not do is a fault with a hint,
// because its author believes that it is done.

// hints say what to write instead of a key that has another name, or none, here.
// They are found by the object that the key stands in.
var hints = map[string]string{
	"retry.limit":         "; the number of attempts is max_attempts",
	"retry.initial_delay": "; the first pause is backoff_base_ms, in milliseconds",
	"retry.max_delay":     "; the longest pause is max_backoff_ms, in milliseconds",
	"handler.method":      "; not supported: callable alone names the function that a worker runs",
	"handler.resolver":    "; not supported: callable alone names the function that a worker runs",
	"steps.result_schema": "; not supported: results are not checked against a schema, only contexts by input_schema",
	"steps.batch_config":  "; batches are not supported",
	"steps.lifecycle":     "; not supported for one step: lifecycle belongs to the template",
}

// foreignTypes are the kinds of steps that are not supported.
var foreignTypes = []string{"decision", "batchable", "batch_worker", "deferred_convergence"}

// hint ends a fault about an unknown key.
func (v value) hint(key string, known []string) string {
	if v.isForeign(key) {
		return hints[v.place()+"."+key]
	}
	return suggest(v.faults, key, known)
}

// isForeign reports whether there is a hint for a key.
func (v value) isForeign(key string) bool {
	_, ok := hints[v.place()+"."+key]
	return ok
}

// place is the key that an object stands under: steps of steps[1].
func (v value) place() string {
	key, _, _ := strings.Cut(v.path[strings.LastIndex(v.path, ".")+1:], "[")
	return key
}

// ignoreForeign reads the keys of a template that have no effect.
func (f fields) ignoreForeign() {
	if v, ok := f.get("metadata"); ok {
		v.object()
	}
	if v, ok := f.get("system_dependencies"); ok {
		v.object()
	}
	if v, ok := f.get("loaded_from"); ok {
		v.text()
	}
	f.refuseEvents("domain_events")
}

// ignoreForeignOfStep reads the keys of a step that have no effect.
func (f fields) ignoreForeignOfStep() {
	if v, ok := f.get("system_dependency"); ok {
		if name, isText := v.text(); isText && name != "" {
			v.fault("not supported: a step depends on other steps only; leave it empty or out")
		}
	}
	f.refuseEvents("publishes_events")
}

// refuseEvents accepts an empty list.
func (f fields) refuseEvents(name string) {
	v, ok := f.get(name)
	if ok && (v.node.Kind != yaml.SequenceNode || len(v.node.Content) > 0) {
		v.fault("not supported: steps publish no events of their own; leave the list empty or out")
	}
}
