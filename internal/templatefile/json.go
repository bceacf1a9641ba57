package templatefile

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"

	"go.yaml.in/yaml/v3"
)

// documentLimits apply to a template and to the JSON inside it.
var documentLimits = payload.Limits{
	Bytes: tasker.MaxTemplateBytes, Depth: maxDepth, Keys: tasker.MaxTemplateBytes, Values: tasker.MaxTemplateBytes,
}

// parseJSONTree parses a JSON document into the same tree as parseYAMLTree. It bypasses the YAML
// parser: some JSON is not YAML (\u escape pairs, long keys), and the YAML parser accepts text that
// is not JSON.
func parseJSONTree(doc []byte, found *faults) *yaml.Node {
	b := treeBuilder{doc: doc, reader: payload.NewReader(doc, documentLimits, maxFaults), line: 1}
	root := b.buildValue()
	list, wellFormed := b.reader.End()
	for _, fault := range list {
		found.add(fault)
	}
	if !wellFormed {
		return nil
	}
	return root
}

// treeBuilder builds the nodes of a document.
type treeBuilder struct {
	doc    []byte
	reader *payload.Reader
	line   int // current line
	start  int // offset of the current line
	seen   int // offset up to which lines are counted
}

// newScalar returns a node for the value at an offset. Offsets must increase.
func (b *treeBuilder) newScalar(at int, tag, text string) *yaml.Node {
	for ; b.seen < at; b.seen++ {
		if b.doc[b.seen] == '\n' {
			b.line, b.start = b.line+1, b.seen+1
		}
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text, Line: b.line, Column: at - b.start + 1}
	if tag == "!!str" {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func (b *treeBuilder) buildValue() *yaml.Node {
	at := b.reader.Offset()
	switch b.reader.Kind() {
	case payload.Object:
		return b.buildObject(at)
	case payload.Array:
		n := b.newScalar(at, "!!seq", "")
		n.Kind = yaml.SequenceNode
		b.reader.Array(func(int) { n.Content = append(n.Content, b.buildValue()) })
		return n
	case payload.String:
		return b.newScalar(at, "!!str", b.reader.Text())
	case payload.Number:
		n := b.newScalar(at, "!!int", string(b.reader.Value()))
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
		return n
	case payload.Boolean:
		return b.newScalar(at, "!!bool", string(b.reader.Value()))
	default:
		b.reader.Value()
		return b.newScalar(at, "!!null", "null")
	}
}

// buildObject returns a node for the object at an offset. It keeps the first of repeated keys;
// package payload reports the others.
func (b *treeBuilder) buildObject(at int) *yaml.Node {
	n := b.newScalar(at, "!!map", "")
	n.Kind = yaml.MappingNode
	seen := map[string]bool{}
	b.reader.Object(func(name string) {
		key := b.newScalar(b.reader.KeyOffset(), "!!str", name)
		child := b.buildValue()
		if !seen[name] {
			seen[name] = true
			n.Content = append(n.Content, key, child)
		}
	})
	return n
}

// appendJSON appends the value as JSON. Numbers keep all digits.
func (v value) appendJSON(out []byte) []byte {
	switch v.node.Kind {
	case yaml.MappingNode:
		out = append(out, '{')
		separate := false
		for key, member := range v.members() {
			if separate {
				out = append(out, ',')
			}
			separate = true
			out = member.appendJSON(append(appendString(out, v.faults.nameOf(key)), ':'))
		}
		return append(out, '}')
	case yaml.SequenceNode:
		out = append(out, '[')
		for i, item := range v.node.Content {
			if i > 0 {
				out = append(out, ',')
			}
			out = v.element(i, item).appendJSON(out)
		}
		return append(out, ']')
	default:
		return v.appendScalar(out)
	}
}

func (v value) appendScalar(out []byte) []byte {
	if v.node.Tag == "!!str" && v.node.Style == 0 && jsonNumber.MatchString(v.node.Value) {
		return append(out, v.canonicalNumber()...) // the YAML library decodes an oversized number as text
	}
	switch v.node.Tag {
	case "!!null":
		return append(out, "null"...)
	case "!!bool":
		return append(out, strings.ToLower(v.node.Value)...)
	case "!!int", "!!float":
		return append(out, v.canonicalNumber()...)
	default:
		return appendString(out, v.node.Value)
	}
}

func appendString(out []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // cannot fail
	return append(out, quoted...)
}

var (
	// ambiguousNumber matches digits with underscores and prefixes of other bases.
	ambiguousNumber = regexp.MustCompile(`_|^[-+]?0[xXoObB]`)

	jsonNumber  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
	leadingZero = regexp.MustCompile(`^[-+]?0[0-9]`)
	bareDecimal = regexp.MustCompile(`^([-+]?)([0-9]*)(?:\.([0-9]*))?([eE][-+]?[0-9]+)?$`)
)

// canonicalNumber returns a YAML number in JSON syntax.
func (v value) canonicalNumber() string {
	text := v.node.Value
	switch {
	case jsonNumber.MatchString(text):
	case ambiguousNumber.MatchString(text):
		v.addFault("%s is ambiguous in YAML: put it in quotes, or write a plain decimal number", quoteText(text))
		return "0"
	case leadingZero.MatchString(text):
		v.addFault("the number %s begins with 0 and may be read as octal: remove the 0, or put it in quotes", quoteText(text))
		return "0"
	default:
		text = normalizeNumber(text)
	}
	if text == "" {
		v.addFault("%s is not a valid JSON number", quoteText(v.node.Value))
		return "0"
	}
	if wrong := payload.CheckNumber(text, documentLimits); wrong != "" {
		v.addFault("%s", wrong)
	}
	return text
}

// normalizeNumber converts numbers such as +1, .5 and 2. to JSON syntax. It returns "" for other
// text.
func normalizeNumber(text string) string {
	m := bareDecimal.FindStringSubmatch(text)
	if m == nil || m[2]+m[3] == "" {
		return ""
	}
	number := strings.TrimPrefix(m[1], "+") + cmp.Or(m[2], "0")
	if m[3] != "" {
		number += "." + m[3]
	}
	return number + m[4]
}
