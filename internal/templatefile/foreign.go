package templatefile

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"tasker.example/tasker"
)

// Keys that other workflow engines with the same templates know. What has no effect there
// is accepted with a warning, and without one where it asks for nothing: null, an empty
// list or object. What has an effect there and none here is a fault with a hint, because
// its author relies on it.

// withoutEffect are the keys that are accepted, by the object that they are in, each
// with what to write instead, if there is something.
var withoutEffect = map[string]string{
	".system_dependencies":           "",
	".domain_events":                 "",
	".loaded_from":                   "",
	".composition":                   "",
	"lifecycle.staleness_action":     "",
	"lifecycle.auto_fail_on_timeout": "",
	"lifecycle.auto_dlq_on_timeout":  "",
	"steps.system_dependency":        "; a step depends on other steps only",
	"steps.lifecycle":                "; lifecycle belongs to the template",
	"steps.result_schema":            "; results are not checked against a schema, only contexts by input_schema",
	"retry.initial_delay":            "; the first pause is backoff_base_ms, in milliseconds",
	"retry.max_delay":                "; the longest pause is max_backoff_ms, in milliseconds",
}

// hints say what to write instead of a key that has another name, or none, here.
// They are found by the object that the key is in.
var hints = map[string]string{
	"retry.limit":        "; the number of attempts is max_attempts",
	"handler.method":     "; not supported: callable alone names the function that a worker runs",
	"handler.resolver":   "; not supported: callable alone names the function that a worker runs",
	"steps.batch_config": "; batches are not supported",
}

// foreignTypes are the kinds of steps that are not supported.
var foreignTypes = []string{"decision", "batchable", "batch_worker", "deferred_convergence"}

// hint ends a fault about an unknown key.
func (v value) hint(key string, known []string) string {
	if hint, ok := hints[v.place()+"."+key]; ok {
		return hint
	}
	return suggest(v.faults, key, known)
}

// ignored reports whether a member is accepted although it is not known, and warns when
// it asks for something.
func (v value) ignored(key *yaml.Node, member value) bool {
	place := v.place() + "." + key.Value
	instead, known := withoutEffect[place]
	if _, hinted := hints[place]; !known && !hinted {
		return false
	}
	if isNull(member.node) || (known && isEmpty(member.node)) {
		return true
	}
	if known {
		v.faults.warn(tasker.Fault{Path: member.path, Line: key.Line, Column: key.Column, Message: "has no effect" + instead})
	}
	return known
}

// isEmpty reports whether a node is an empty list, an empty object or an empty text.
func isEmpty(n *yaml.Node) bool {
	return len(n.Content) == 0 && (n.Kind != yaml.ScalarNode || n.Value == "")
}

// place is the key that an object is under: steps of steps[1], and nothing at the top.
func (v value) place() string {
	key, _, _ := strings.Cut(v.path[strings.LastIndex(v.path, ".")+1:], "[")
	return key
}

// refuseEvents accepts an empty list.
func (f fields) refuseEvents(name string) {
	v, ok := f.get(name)
	if ok && (v.node.Kind != yaml.SequenceNode || len(v.node.Content) > 0) {
		v.fault("not supported: steps publish no events of their own; leave the list empty or out")
	}
}
