package templatefile

import (
	"encoding/json"
	"fmt"
	"strconv"

	"tasker.example/tasker"

	"go.yaml.in/yaml/v3"
)

// A value is one place of the document: what stands there, and how it is named
// in a fault. Its methods read it as what it should be; when it is something
// else they note a fault and return nothing.
type value struct {
	node   *yaml.Node
	path   string
	faults *faults
}

func (v value) fault(format string, args ...any) {
	v.faults.add(tasker.Fault{
		Line: v.node.Line, Column: v.node.Column, Path: v.path, Message: fmt.Sprintf(format, args...),
	})
}

// at returns an item of a list.
func (v value) at(i int, item *yaml.Node) value {
	return value{node: item, path: fmt.Sprintf("%s[%d]", v.path, i), faults: v.faults}
}

// member returns a member of an object.
func (v value) member(key, child *yaml.Node) value {
	path := key.Value
	switch {
	case !isName(path):
		path = v.path + "[" + quote(path) + "]"
	case v.path != "":
		path = v.path + "." + path
	}
	return value{node: child, path: path, faults: v.faults}
}

// kind says what stands there, for a fault: "must be text, not a number".
func (v value) kind() string {
	switch v.node.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	default:
	}
	switch v.node.Tag {
	case "!!int", "!!float":
		return "the number"
	case "!!bool":
		return "the truth value"
	case "!!null":
		return "null"
	default:
		return "the text"
	}
}

// wrong notes that something else was wanted. An alias is noted already.
func (v value) wrong(want string) {
	if v.node.Kind == yaml.AliasNode {
		return
	}
	is := v.kind()
	if v.node.Kind == yaml.ScalarNode && v.node.Tag != "!!null" {
		is += " " + quote(v.node.Value)
	}
	v.fault("must be %s, not %s", want, is)
}

// isText reports whether a scalar is text. A plain date is: JSON has no dates.
func isText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Tag == "!!str" || n.Tag == "!!timestamp")
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// text reads a string.
func (v value) text() (string, bool) {
	switch {
	case isText(v.node):
		return v.node.Value, true
	case v.node.Kind == yaml.ScalarNode && !isNull(v.node):
		v.fault("must be text, not %s %s; write it in quotes", v.kind(), v.node.Value)
	default:
		v.wrong("text")
	}
	return "", false
}

// integer reads a whole number from low to high.
func (v value) integer(low, high int) (int, bool) {
	if v.node.Kind != yaml.ScalarNode || v.node.Tag != "!!int" {
		v.wrong(fmt.Sprintf("a whole number from %d to %d", low, high))
		return 0, false
	}
	n, err := strconv.Atoi(v.node.Value)
	if err != nil || n < low || n > high || strconv.Itoa(n) != v.node.Value {
		v.wrong(fmt.Sprintf("a whole number from %d to %d, in decimal digits", low, high))
		return 0, false
	}
	return n, true
}

// truth reads true or false.
func (v value) truth() (bool, bool) {
	if v.node.Kind != yaml.ScalarNode || v.node.Tag != "!!bool" {
		v.wrong("true or false")
		return false, false
	}
	b, err := strconv.ParseBool(v.node.Value) // all spellings of YAML are among those of Go
	return b, err == nil
}

// items reads a list.
func (v value) items() []value {
	if v.node.Kind != yaml.SequenceNode {
		v.wrong("a list")
		return nil
	}
	items := make([]value, len(v.node.Content))
	for i, n := range v.node.Content {
		items[i] = v.at(i, n)
	}
	return items
}

// object reads an object as JSON, whatever its members are.
func (v value) object() json.RawMessage {
	if v.node.Kind != yaml.MappingNode {
		v.wrong("an object")
		return nil
	}
	known := len(v.faults.list)
	raw := v.appendJSON(nil)
	if len(v.faults.list) > known || v.faults.full() {
		return nil
	}
	return raw
}
