package payload

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestWalkAgreesWithTheStandardLibrary: members and elements are those that
// encoding/json finds.
func TestWalkAgreesWithTheStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := []byte(" " + aValue(3).Draw(t, "document") + "\n")
		var object map[string]json.RawMessage
		if json.Unmarshal(doc, &object) == nil && object != nil {
			if got := maps.Collect(Members(doc)); !reflect.DeepEqual(got, object) {
				t.Fatalf("members of %s: %q, want %q", doc, got, object)
			}
		}
		var list []json.RawMessage
		if json.Unmarshal(doc, &list) == nil && list != nil {
			if got := slices.Collect(Elements(doc)); !slices.EqualFunc(got, list, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
				t.Fatalf("elements of %s: %q, want %q", doc, got, list)
			}
		}
	})
}

func TestWalkEndsWhereItIsTold(t *testing.T) {
	for range Members([]byte(`{"a": 1, "b": 2}`)) {
		break
	}
	for range Elements([]byte(`[1, 2]`)) {
		break
	}
}

func FuzzWalk(f *testing.F) {
	for _, doc := range []string{`{"a": [1, "x\"]"], "b\"": {}}`, `[{}, [], "", 1 ]`, ` [ ] `, `{`, `["`, `{"a":`} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if _, whole := Faults(doc, Limits{}, 1); !whole {
			return
		}
		for _, v := range Members(doc) {
			if !json.Valid(v) {
				t.Fatalf("%q of %q", v, doc)
			}
		}
		for v := range Elements(doc) {
			if !json.Valid(v) {
				t.Fatalf("%q of %q", v, doc)
			}
		}
	})
}
