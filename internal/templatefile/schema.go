package templatefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"tasker"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// An InputSchema is the compiled input schema of a template.
type InputSchema struct {
	compiled *jsonschema.Schema
}

// CompileInput compiles the input schema of a template. No schema, nil or empty,
// accepts every object. The error is Invalid.
func CompileInput(schema json.RawMessage) (*InputSchema, error) {
	if len(schema) == 0 {
		return nil, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "input_schema is not JSON: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource("input_schema.json", doc); err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "input_schema: %w", err)
	}
	compiled, err := c.Compile("input_schema.json")
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "input_schema: %w", err)
	}
	return &InputSchema{compiled: compiled}, nil
}

// Check lists everything in which a task's context differs from the schema.
func (s *InputSchema) Check(context json.RawMessage) []tasker.Fault {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(context))
	if err != nil {
		return []tasker.Fault{{Message: "not JSON: " + err.Error()}}
	}
	if _, ok := doc.(map[string]any); !ok {
		return []tasker.Fault{{Message: "must be an object"}}
	}
	if s == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if err := s.compiled.Validate(doc); errors.As(err, &invalid) {
		return []tasker.Fault{{Message: invalid.Error()}}
	} else if err != nil {
		return []tasker.Fault{{Message: fmt.Sprint(err)}}
	}
	return nil
}

func (v value) inputSchema() json.RawMessage {
	raw := v.object()
	if raw == nil {
		return nil
	}
	if _, err := CompileInput(raw); err != nil {
		v.fault("%s", err)
	}
	return raw
}
