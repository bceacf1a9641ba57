package templatefile

import (
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"

	"go.yaml.in/yaml/v3"
)

// documentLimits hold for a template and for the JSON inside it.
var documentLimits = payload.Limits{Bytes: tasker.MaxTemplateBytes, Depth: maxDepth, Keys: tasker.MaxTemplateBytes, Values: tasker.MaxTemplateBytes}

// jsonTree reads a JSON document into the same tree as yamlTree. It does not go
// through the YAML reader: not all JSON is YAML (pairs of \u escapes, long
// keys), and not all that the YAML reader accepts is JSON.
func jsonTree(doc []byte, found *faults) *yaml.Node {
	b := treeBuilder{doc: doc, reader: payload.NewReader(doc, documentLimits, maxFaults), line: 1}
	root := b.value()
	list, wellFormed := b.reader.End()
	for _, fault := range list {
		found.add(fault)
	}
	if !wellFormed {
		return nil
	}
	return root
}

// A treeBuilder makes nodes of the values of a document.
type treeBuilder struct {
	doc    []byte
	reader *payload.Reader
	line   int // of the offset below
	start  int // offset where that line begins
	seen   int // offset up to which lines are counted
}

// scalar returns a node for what begins at an offset. Offsets only rise.
func (b *treeBuilder) scalar(at int, tag, text string) *yaml.Node {
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

func (b *treeBuilder) value() *yaml.Node {
	at := b.reader.Offset()
	switch b.reader.Kind() {
	case payload.Object:
		return b.object(at)
	case payload.Array:
		n := b.scalar(at, "!!seq", "")
		n.Kind = yaml.SequenceNode
		b.reader.Array(func(int) { n.Content = append(n.Content, b.value()) })
		return n
	case payload.String:
		return b.scalar(at, "!!str", b.reader.Text())
	case payload.Number:
		n := b.scalar(at, "!!int", string(b.reader.Value()))
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
		return n
	case payload.Boolean:
		return b.scalar(at, "!!bool", string(b.reader.Value()))
	default:
		b.reader.Value()
		return b.scalar(at, "!!null", "null")
	}
}

// object keeps the first of repeated keys; package payload notes the others.
func (b *treeBuilder) object(at int) *yaml.Node {
	n := b.scalar(at, "!!map", "")
	n.Kind = yaml.MappingNode
	seen := map[string]bool{}
	b.reader.Object(func(name string) {
		key := b.scalar(b.reader.KeyOffset(), "!!str", name)
		child := b.value()
		if !seen[name] {
			seen[name] = true
			n.Content = append(n.Content, key, child)
		}
	})
	return n
}
