package templatefile

import (
	"fmt"
	"iter"
	"strings"

	"tasker.example/tasker"

	"go.yaml.in/yaml/v3"
)

// value is a node of the document with the path by which faults refer to it.
type value struct {
	node   *yaml.Node
	path   string
	faults *faults
}

func (v value) addFault(format string, args ...any) {
	v.faults.add(tasker.Fault{
		Line: v.node.Line, Column: v.node.Column, Path: v.path, Message: fmt.Sprintf(format, args...),
	})
}

func (v value) element(i int, item *yaml.Node) value {
	return value{node: item, path: fmt.Sprintf("%s[%d]", v.path, i), faults: v.faults}
}

func (v value) member(key, child *yaml.Node) value {
	path := key.Value
	switch {
	case !namePattern.MatchString(path): // needs quotes
		path = v.path + "[" + quoteText(path) + "]"
	case v.path != "":
		path = v.path + "." + path
	}
	return value{node: child, path: path, faults: v.faults}
}

// describeKind describes the kind of a value, as in "must be text, not a number".
func (v value) describeKind() string {
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
		return "the boolean"
	case "!!null":
		return "null"
	default:
		return "the string"
	}
}

// reportWrongType records a fault that the value must be want, except for an alias, which already
// has a fault.
func (v value) reportWrongType(want string) {
	if v.node.Kind == yaml.AliasNode {
		return
	}
	is := v.describeKind()
	if v.node.Kind == yaml.ScalarNode && v.node.Tag != "!!null" {
		is += " " + quoteText(v.node.Value)
	}
	v.addFault("must be %s, not %s", want, is)
}

// isText reports whether a node is text. That includes a plain date, because JSON has no dates.
func isText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Tag == "!!str" || n.Tag == "!!timestamp")
}

func isNumber(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Tag == "!!int" || n.Tag == "!!float")
}

// isEmpty reports whether a node is null, an empty list, an empty object or an empty text.
func isEmpty(n *yaml.Node) bool {
	return isNull(n) || (len(n.Content) == 0 && (n.Kind != yaml.ScalarNode || n.Value == ""))
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// items returns the items of a list, or nil for other values.
func (v value) items() []value {
	if v.node == nil || v.node.Kind != yaml.SequenceNode {
		return nil
	}
	items := make([]value, len(v.node.Content))
	for i, n := range v.node.Content {
		items[i] = v.element(i, n)
	}
	return items
}

// members iterates over the keys and members of an object. Other values have none.
func (v value) members() iter.Seq2[*yaml.Node, value] {
	return func(yield func(*yaml.Node, value) bool) {
		if v.node == nil || v.node.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(v.node.Content); i += 2 {
			if key := v.node.Content[i]; !yield(key, v.member(key, v.node.Content[i+1])) {
				return
			}
		}
	}
}

// get returns the member of an object with this canonical name, or false if there is none.
func (v value) get(name string) (value, bool) {
	if v.node == nil || v.node.Kind != yaml.MappingNode {
		return value{}, false
	}
	i := v.childIndex(name)
	if i < 0 {
		return value{}, false
	}
	return v.member(v.node.Content[i-1], v.node.Content[i]), true
}

// place returns the key of a value, such as steps for steps[1], or "" for the whole document.
func (v value) place() string {
	key, _, _ := strings.Cut(v.path[strings.LastIndex(v.path, ".")+1:], "[")
	return key
}
