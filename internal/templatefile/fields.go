package templatefile

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// fields are the members of an object whose keys we know. A key that is not
// known is a fault, and so is the same thing said under two names.
type fields struct {
	of      value
	members map[string]value
}

// fields reads an object whose keys are among known: "name", or "name|alias" for
// a key that has two spellings. A member that is null counts as absent.
func (v value) fields(known ...string) (fields, bool) {
	f := fields{of: v, members: map[string]value{}}
	if v.node.Kind != yaml.MappingNode {
		v.wrong("an object")
		return f, false
	}
	canonical := map[string]string{}
	var names []string
	for _, k := range known {
		name, _, _ := strings.Cut(k, "|")
		for spelling := range strings.SplitSeq(k, "|") {
			canonical[spelling] = name
			names = append(names, spelling)
		}
	}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key, member := v.node.Content[i], v.member(v.node.Content[i], v.node.Content[i+1])
		name, ok := canonical[key.Value]
		if !ok && v.ignored(key, member) {
			continue
		}
		if !ok {
			value{node: key, path: member.path, faults: v.faults}.fault("unknown key%s", v.hint(key.Value, names))
			continue
		}
		if isNull(member.node) {
			continue
		}
		if before, twice := f.members[name]; twice {
			f.reconcile(before, member)
			continue
		}
		f.members[name] = member
	}
	return f, true
}

// reconcile allows a thing to be said under two names when both say the same.
func (f fields) reconcile(a, b value) {
	if a.node.Kind == yaml.ScalarNode && b.node.Kind == yaml.ScalarNode &&
		a.node.Tag == b.node.Tag && a.node.Value == b.node.Value {
		return
	}
	b.fault("is another name for %s, which is given as well; keep one of them", a.path)
}

// get returns a member that may be absent.
func (f fields) get(name string) (value, bool) {
	v, ok := f.members[name]
	return v, ok
}

// need returns a member that must be there.
func (f fields) need(name string) (value, bool) {
	v, ok := f.members[name]
	if !ok {
		missing := f.of
		if missing.path != "" {
			name = missing.path + "." + name
		}
		missing.path = name
		missing.fault("is missing")
	}
	return v, ok
}

// integer returns the whole number under name, or otherwise when it is absent.
func (f fields) integer(name string, low, high, otherwise int) int {
	if v, ok := f.get(name); ok {
		n, _ := v.integer(low, high)
		return n
	}
	return otherwise
}

// suggest ends a fault about an unknown word with the nearest known one.
func suggest(found *faults, word string, known []string) string {
	if found.full() {
		return "" // nobody will read it
	}
	if near := nearest(word, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}
