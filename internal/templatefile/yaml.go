package templatefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"tasker.example/tasker"

	"go.yaml.in/yaml/v3"
)

const maxDepth = 64 // nested objects and lists

// parseYAMLTree parses a single YAML document. The tree contains only lists, scalars, and objects
// with unique text keys.
func parseYAMLTree(doc []byte, found *faults) *yaml.Node {
	if !utf8.Valid(doc) {
		found.add(tasker.Fault{Line: findInvalidLine(doc), Message: "not valid UTF-8"})
		return nil
	}
	d := yaml.NewDecoder(bytes.NewReader(doc))
	var first, second yaml.Node
	if err := d.Decode(&first); err != nil {
		if errors.Is(err, io.EOF) {
			found.add(tasker.Fault{Line: 1, Message: "the document is empty"})
		} else {
			found.add(newSyntaxFault(err))
		}
		return nil
	}
	switch err := d.Decode(&second); {
	case err == nil:
		found.add(tasker.Fault{Line: second.Line, Column: second.Column,
			Message: "a second document begins here: a template must be a single document"})
	case !errors.Is(err, io.EOF):
		found.add(newSyntaxFault(err))
	}
	root := first.Content[0]
	if !resolveAliases(value{node: root, faults: found}, 0) {
		return nil
	}
	return root
}

func findInvalidLine(doc []byte) int {
	for i := 0; i < len(doc); {
		r, size := utf8.DecodeRune(doc[i:])
		if r == utf8.RuneError && size == 1 {
			return bytes.Count(doc[:i], []byte("\n")) + 1
		}
		i += size
	}
	return 0
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// newSyntaxFault converts an error of the YAML library to a fault. It extracts the line from the
// message, because the library does not provide it elsewhere.
func newSyntaxFault(err error) tasker.Fault {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	fault := tasker.Fault{Line: 1}
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		fault.Line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	}
	fault.Message = "invalid YAML: " + message
	return fault
}

// resolveAliases records a fault for each YAML feature beyond plain data, and removes repeated
// keys. It returns false if the tree is too deep.
func resolveAliases(v value, depth int) bool {
	n := v.node
	v.checkNoExtras()
	if (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) && depth == maxDepth {
		v.addFault("nested more than %d levels deep", maxDepth)
		return false
	}
	switch n.Kind {
	case yaml.MappingNode:
		return resolveObjectAliases(v, depth)
	case yaml.SequenceNode:
		for i, item := range n.Content {
			if !resolveAliases(v.element(i, item), depth+1) {
				return false
			}
		}
	default: // scalars have no content, and aliases are not followed
	}
	return true
}

func resolveObjectAliases(v value, depth int) bool {
	n := v.node
	seen := make(map[string]int, len(n.Content)/2)
	content := n.Content[:0]
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, child := n.Content[i], n.Content[i+1]
		keyAt := value{node: key, path: v.path, faults: v.faults}
		if !keyAt.isKey() {
			continue
		}
		member := v.member(key, child)
		if line, duplicate := seen[key.Value]; duplicate {
			value{node: key, path: member.path, faults: v.faults}.addFault("duplicate key; first in line %d", line)
			continue
		}
		seen[key.Value] = key.Line
		if !resolveAliases(member, depth+1) {
			return false
		}
		content = append(content, key, child)
	}
	n.Content = content
	return true
}

// isKey reports whether a node can be a key. It records a fault if it cannot.
func (v value) isKey() bool {
	switch n := v.node; {
	case n.Kind == yaml.AliasNode:
		v.checkNoExtras()
	case n.Tag == "!!merge":
		v.addFault("merge keys (<<) are not supported: write the keys out")
	case n.Kind != yaml.ScalarNode:
		v.addFault("a key must be a string, not %s", v.describeKind())
	case n.Style&yaml.TaggedStyle != 0 || n.Anchor != "":
		v.checkNoExtras()
	case !isText(n):
		v.addFault("a key must be a string, not %s %s: put it in quotes", v.describeKind(), quoteText(n.Value))
	case strings.ContainsRune(n.Value, 0):
		v.addFault("a key must not contain NUL")
	default:
		return true
	}
	return false
}

// checkNoExtras records a fault for each YAML feature that templates must not use.
func (v value) checkNoExtras() {
	n := v.node
	if n.Kind == yaml.AliasNode {
		v.addFault("aliases (*%s) are not supported: write the value out", truncateName(n.Value))
		return
	}
	if n.Anchor != "" {
		v.addFault("anchors (&%s) are not supported", truncateName(n.Anchor))
	}
	if n.Style&yaml.TaggedStyle != 0 {
		v.addFault("tags (%s) are not supported", truncateName(n.Tag))
		if n.Kind == yaml.ScalarNode && !strings.HasPrefix(n.Tag, "!!") {
			n.Tag = "!!str" // avoids further faults
		}
	}
	if n.Kind == yaml.ScalarNode && strings.ContainsRune(n.Value, 0) {
		v.addFault("the string contains NUL")
	}
}

func truncateName(s string) string { return strings.Trim(fmt.Sprint(quoteText(s)), `"`) }
