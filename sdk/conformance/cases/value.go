package cases

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"tasker.example/tasker/sdk/conformance/scripted"
)

// object is a JSON object.
type object = map[string]any

// decode decodes a JSON document with exact numbers.
func decode(t *T, doc json.RawMessage) any {
	if len(doc) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("the result %s is not JSON: %v", doc, err)
	}
	return v
}

// Equal fails the case unless a value is equal to the wanted one, as JSON.
func (t *T) Equal(name string, got, want any) {
	if g, w := canonical(t, got), canonical(t, want); g != w {
		t.Fatalf("%s is %s; it must be %s", name, g, w)
	}
}

// canonical returns a value as JSON with sorted keys.
func canonical(t *T, v any) string {
	doc, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("encode a value: %v", err)
	}
	doc, err = json.Marshal(decode(t, doc))
	if err != nil {
		t.Fatalf("encode a value: %v", err)
	}
	return string(doc)
}

// field returns a field of an object, or fails the case.
func field(t *T, v any, name string) any {
	o, ok := v.(object)
	if !ok {
		t.Fatalf("the result is %v; it must be an object with the key %s", v, name)
	}
	return o[name]
}

// describe formats a reported outcome.
func describe(o *scripted.Outcome) string {
	doc, err := json.Marshal(o.Error)
	if err != nil {
		return fmt.Sprintf("%+v", o.Error)
	}
	return string(doc)
}

func newID() string { return uuid.NewString() }
