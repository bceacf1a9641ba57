package templatefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"tasker"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// schemaURL is the name under which the library knows an input schema. Nothing
// is ever loaded from it, nor from any other place.
const schemaURL = "https://tasker.invalid/input_schema"

// An Input judges the contexts of tasks by the input schema of their template.
// It is safe for concurrent use. A nil Input accepts everything.
type Input struct {
	spare sync.Pool // of *checker, each in use by one Check at a time
}

// A checker is a compiled schema with the meter that counts its work.
type checker struct {
	schema *jsonschema.Schema
	meter  *meter
}

// CompileInput compiles the input schema of a template: JSON Schema, draft
// 2020-12 unless $schema says another. Formats are checked, and $ref reaches no
// further than the schema itself. No schema gives a nil Input. The error is
// Invalid, with a slice of [tasker.Fault] as details.
func CompileInput(schema json.RawMessage) (*Input, error) {
	if len(schema) == 0 {
		return nil, nil
	}
	first, found := compile(schema)
	if len(found) > 0 {
		list := make([]tasker.Fault, len(found))
		for i, v := range found {
			list[i] = tasker.Fault{Path: v.path, Message: v.message}
		}
		return nil, tasker.Errorf(tasker.Invalid, "input_schema has %s", summary(list, false)).WithDetails(list)
	}
	in := &Input{}
	in.spare.New = func() any {
		again, _ := compile(schema) // has no faults, as before
		return again
	}
	in.spare.Put(first)
	return in, nil
}

// Check returns nil for a context that the schema accepts. Otherwise the error
// is Invalid, with a slice of [tasker.Fault] as details: all in which the two
// differ, up to a limit.
func (in *Input) Check(doc json.RawMessage) error {
	if in == nil {
		return nil
	}
	context, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return tasker.Errorf(tasker.Invalid, "the context is not JSON: %v", err)
	}
	c := in.spare.Get().(*checker)
	defer in.spare.Put(c)
	err = c.check(context)
	if err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return tasker.Errorf(tasker.Invalid, "the context cannot be checked: %v", err)
	}
	var list faults
	for _, v := range violations(invalid, context) {
		list.add(tasker.Fault{Path: v.path, Message: v.message})
	}
	return tasker.Errorf(tasker.Invalid, "the context does not match the template's input_schema, it has %s",
		summary(list.list, list.more)).WithDetails(list.list)
}

// check validates within the budget of the meter.
func (c *checker) check(context any) (err error) {
	c.meter.start()
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(exhausted); !ok {
				panic(r)
			}
			err = exhausted{}
		}
	}()
	return c.schema.Validate(context)
}

// compile makes a checker, or says what is wrong with the schema.
func compile(raw json.RawMessage) (*checker, []violation) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, []violation{{message: "not JSON: " + err.Error()}}
	}
	m := &meter{}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	c.UseRegexpEngine(m.regexp)
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, schemaViolations(err, doc)
	}
	schema, err := c.Compile(schemaURL)
	if err != nil {
		return nil, schemaViolations(err, doc)
	}
	if types := schema.Types; types != nil && !types.IsEmpty() && !slices.Contains(types.ToStrings(), "object") {
		return nil, []violation{{tokens: []string{"type"}, path: "type",
			message: "accepts no context at all: a task's context is an object"}}
	}
	m.watch(schema)
	return &checker{schema: schema, meter: m}, nil
}

// schemaViolations explains why a schema does not compile.
func schemaViolations(err error, doc any) []violation {
	var invalid *jsonschema.SchemaValidationError
	var details *jsonschema.ValidationError
	if errors.As(err, &invalid) && errors.As(invalid.Err, &details) {
		return violations(details, doc)
	}
	if unreachable, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return []violation{{message: fmt.Sprintf("refers to %s, which is not part of this document; nothing is loaded from elsewhere",
			quote(strings.TrimPrefix(unreachable.URL, "https://tasker.invalid/")))}}
	}
	return []violation{{message: strings.ReplaceAll(err.Error(), schemaURL, "")}}
}

// inputSchema reads a JSON Schema and notes what is wrong with it, in its lines.
func (v value) inputSchema() json.RawMessage {
	raw := v.object()
	if raw == nil {
		return nil
	}
	_, found := compile(raw)
	for _, violation := range found {
		v.find(violation.tokens).fault("%s", violation.message)
	}
	return raw
}

// find returns the value at the end of a path of keys and indexes, or the last
// one on the way that is there.
func (v value) find(tokens []string) value {
	for _, token := range tokens {
		i := childIndex(v.node, token)
		if i < 0 {
			return v
		}
		if v.node.Kind == yaml.MappingNode {
			v = v.member(v.node.Content[i-1], v.node.Content[i])
		} else {
			v = v.at(i, v.node.Content[i])
		}
	}
	return v
}

// childIndex returns where among the node's content a key's value or an item is.
func childIndex(n *yaml.Node, token string) int {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			if n.Content[i-1].Value == token {
				return i
			}
		}
	case yaml.SequenceNode:
		for i := range n.Content {
			if fmt.Sprint(i) == token {
				return i
			}
		}
	default:
	}
	return -1
}
