package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// membersOf reads the members of an object by a tolerant reader.
func membersOf(doc []byte) map[string]json.RawMessage {
	r, members := NewTolerantReader(doc), map[string]json.RawMessage{}
	r.Object(func(key string) { members[key] = r.Value() })
	return members
}

func elementsOf(doc []byte) []json.RawMessage {
	r, elements := NewTolerantReader(doc), []json.RawMessage{}
	r.Array(func(i int) {
		if i == len(elements) {
			elements = append(elements, r.Value())
		}
	})
	return elements
}

// TestReaderAgreesWithTheStandardLibrary: members and elements are those that
// encoding/json finds, and so is what is decoded.
func TestReaderAgreesWithTheStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := []byte(" " + aValue(3).Draw(t, "document") + "\n")
		var object map[string]json.RawMessage
		if json.Unmarshal(doc, &object) == nil && object != nil {
			if got := membersOf(doc); !maps.EqualFunc(got, object, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
				t.Fatalf("members of %s: %q, want %q", doc, got, object)
			}
		}
		var list []json.RawMessage
		if json.Unmarshal(doc, &list) == nil && list != nil {
			if got := elementsOf(doc); !slices.EqualFunc(got, list, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
				t.Fatalf("elements of %s: %q, want %q", doc, got, list)
			}
		}
		value, size, err := Decode(doc, Limits{})
		measured, refused := Measure(doc, Limits{})
		if size != measured || fmt.Sprint(err) != fmt.Sprint(refused) {
			t.Fatalf("decoding %s gives %d, %v; measuring it gives %d, %v", doc, size, err, measured, refused)
		}
		if err != nil {
			return
		}
		var want any
		d := json.NewDecoder(bytes.NewReader(doc))
		d.UseNumber()
		if err := d.Decode(&want); err != nil || !reflect.DeepEqual(value, want) {
			t.Fatalf("%s is decoded as %#v, want %#v (%v)", doc, value, want, err)
		}
	})
}

// TestReaderReadsWhatItsCallerDoesNot: every value is judged, also one that the
// caller has no use for.
func TestReaderReadsWhatItsCallerDoesNot(t *testing.T) {
	doc := []byte(`{"a": [1, {"b": "\u0000"}], "c": "text", "d": [[]], "a": 1}`)
	r := NewReader(doc, Limits{}, 10)
	var keys []string
	text := ""
	r.Object(func(key string) {
		keys = append(keys, key)
		switch key {
		case "a":
			r.Array(func(int) {})
		case "c":
			text = r.Text()
		case "d":
			r.Object(func(string) { t.Error("an array has members") })
		}
	})
	faults, wellFormed := r.End()
	if got := fmt.Sprint(keys, text, faults, wellFormed); got !=
		`[a c d a]text[line 1: a[1].b: the string has a NUL (\u0000), which cannot be stored line 1: a: duplicate key] true` {
		t.Error(got)
	}
}

// TestReaderOfAMalformedDocument: reading on gives nothing, and the first place is named.
func TestReaderOfAMalformedDocument(t *testing.T) {
	r := NewReader([]byte(`{"a": [1, nope], "b": "text"}`), Limits{}, 10)
	r.Object(func(key string) {
		r.Array(func(int) { r.Value() })
		if kind, value, text := r.Kind(), r.Value(), r.Text(); kind != "" || value != nil || text != "" {
			t.Errorf("after the fault come %q, %q and %q", kind, value, text)
		}
	})
	r.Array(func(int) { t.Error("an element after the fault") })
	if faults, wellFormed := r.End(); wellFormed || fmt.Sprint(faults) != "[line 1: a[1]: invalid start of a JSON value: 'n']" {
		t.Errorf("%v, %v", faults, wellFormed)
	}
}

// TestReaderOfWhatIsNotUTF8: nothing of it is read.
func TestReaderOfWhatIsNotUTF8(t *testing.T) {
	r := NewReader([]byte("[\"a\xff\", 1]"), Limits{}, 10)
	if kind, value := r.Kind(), r.Value(); kind != "" || value != nil {
		t.Errorf("read %q, %q", kind, value)
	}
	if faults, wellFormed := r.End(); wellFormed || len(faults) != 1 {
		t.Errorf("%v, %v", faults, wellFormed)
	}
}

// TestTolerantReaderJudgesOnlyTheForm: what a strict reader refuses in a document that is
// JSON, it takes.
func TestTolerantReaderJudgesOnlyTheForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := aDocument().Draw(t, "document")
		faults, wellFormed := NewTolerantReader(doc).End()
		if valid := json.Valid(doc); wellFormed != valid || len(faults) > 0 {
			t.Fatalf("%q is JSON: %v, taken for JSON: %v, with faults %v", doc, valid, wellFormed, faults)
		}
	})
	for nested, want := range map[int]bool{10_000: true, 10_001: false} {
		doc := []byte(strings.Repeat("[", nested) + strings.Repeat("]", nested))
		if _, wellFormed := NewTolerantReader(doc).End(); wellFormed != want || json.Valid(doc) != want {
			t.Errorf("%d deep: %v", nested, wellFormed)
		}
	}
}

func FuzzReader(f *testing.F) {
	for _, doc := range []string{`{"a": [1, "x\"]"], "b\"": {}}`, `[{}, [], "", 1 ]`, ` [ ] `, `{`, `["`, `{"a":`} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if _, wellFormed := NewTolerantReader(doc).End(); wellFormed != json.Valid(doc) {
			t.Fatalf("%q is taken for JSON: %v", doc, wellFormed)
		}
		if _, _, err := Decode(doc, Limits{}); (err == nil) != (Check(doc, Limits{}) == nil) {
			t.Fatalf("%q: %v", doc, err)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	row := `{"step_uuid": "01920000-0000-7000-8000-000000000000", "success": true, "result": {"a": [1, 2, 3], "b": "text", "c": {"d": null}}}`
	doc := []byte("[" + strings.Repeat(row+",", 799) + row + "]")
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		r := NewTolerantReader(doc)
		r.Array(func(int) { r.Object(func(string) { r.Value() }) })
	}
}
