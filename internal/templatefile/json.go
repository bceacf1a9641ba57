package templatefile

import (
	"bytes"
	"encoding/json"
	"strconv"
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
	list, wellFormed := payload.Faults(doc, documentLimits, maxFaults)
	for _, fault := range list {
		found.add(fault)
	}
	if !wellFormed {
		return nil
	}
	b := treeBuilder{doc: doc, tokens: json.NewDecoder(bytes.NewReader(doc)), line: 1}
	b.tokens.UseNumber()
	return b.value(b.next())
}

// A treeBuilder makes nodes of the tokens of a document that is known to be JSON.
type treeBuilder struct {
	doc    []byte
	tokens *json.Decoder
	line   int // of the offset below
	start  int // offset where that line begins
	seen   int // offset up to which lines are counted
}

// next returns the next token with the place where it begins.
func (b *treeBuilder) next() (json.Token, *yaml.Node) {
	at := int(b.tokens.InputOffset())
	for at < len(b.doc) && strings.IndexByte(" \t\r\n,:", b.doc[at]) >= 0 {
		at++
	}
	for ; b.seen < at; b.seen++ {
		if b.doc[b.seen] == '\n' {
			b.line, b.start = b.line+1, b.seen+1
		}
	}
	token, err := b.tokens.Token()
	if err != nil { // unreachable: package payload has read the document before
		token = nil
	}
	return token, &yaml.Node{Line: b.line, Column: at - b.start + 1}
}

func (b *treeBuilder) value(token json.Token, n *yaml.Node) *yaml.Node {
	n.Kind = yaml.ScalarNode
	switch t := token.(type) {
	case json.Delim:
		if t == '{' {
			b.object(n)
		} else {
			b.list(n)
		}
	case string:
		n.Tag, n.Value, n.Style = "!!str", t, yaml.DoubleQuotedStyle
	case json.Number:
		n.Tag, n.Value = "!!int", t.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(t)
	default:
		n.Tag, n.Value = "!!null", "null"
	}
	return n
}

// object keeps the first of repeated keys; package payload has noted the others.
func (b *treeBuilder) object(n *yaml.Node) {
	n.Kind, n.Tag = yaml.MappingNode, "!!map"
	seen := map[string]bool{}
	for b.tokens.More() {
		key := b.value(b.next())
		child := b.value(b.next())
		if !seen[key.Value] {
			seen[key.Value] = true
			n.Content = append(n.Content, key, child)
		}
	}
	b.next()
}

func (b *treeBuilder) list(n *yaml.Node) {
	n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
	for b.tokens.More() {
		n.Content = append(n.Content, b.value(b.next()))
	}
	b.next()
}
