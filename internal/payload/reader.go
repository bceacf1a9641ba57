package payload

import (
	"bytes"
	"encoding/json"
	"math"

	"tasker.example/tasker"
)

// A Kind is the kind of a JSON value, as an error names it: must be a string, not a number.
type Kind string

// Kinds of JSON values.
const (
	Null    Kind = "null"
	Boolean Kind = "true or false"
	Number  Kind = "a number"
	String  Kind = "a string"
	Array   Kind = "an array"
	Object  Kind = "an object"
)

// KindOf returns the kind of a value, or "" if it does not begin with one.
func KindOf(value json.RawMessage) Kind {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return ""
	}
	return kindOf(value[0])
}

// kind returns the kind of the next value, or "" if there is none.
func (s *scanner) kind() Kind {
	if s.at == len(s.text) {
		return ""
	}
	return kindOf(s.text[s.at])
}

func kindOf(first byte) Kind {
	switch {
	case first == '{':
		return Object
	case first == '[':
		return Array
	case first == '"':
		return String
	case first == '-' || isDigit(first):
		return Number
	case first == 't' || first == 'f':
		return Boolean
	case first == 'n':
		return Null
	}
	return ""
}

// A Reader parses a document once, from left to right, and checks the rules of [Check]. The caller
// reads objects, arrays and strings with Object, Array and Text, and other values with Value. It
// can ignore errors until [Reader.End]: after a syntax error, all methods return zero values.
type Reader struct {
	s   scanner
	doc []byte
}

// NewReader returns a reader that lists at most n faults.
func NewReader(doc []byte, l Limits, n int) *Reader {
	r := &Reader{doc: doc, s: scanner{text: string(doc), limits: l.withDefaults(), maxFaults: n}}
	if bad := indexInvalid(r.s.text); bad >= 0 {
		r.s.stop(bad, "not valid UTF-8")
	} else if r.s.skipSpace(); r.s.at == len(r.s.text) {
		r.s.stop(r.s.at, "a JSON value is missing")
	}
	return r
}

// maxNesting is the maximum nesting for a tolerant reader, as in encoding/json.
const maxNesting = 10_000

// NewTolerantReader returns a reader that checks only the JSON syntax, for parts that are checked
// separately.
func NewTolerantReader(doc []byte) *Reader {
	r := &Reader{doc: doc, s: scanner{text: string(doc), limits: Limits{
		Depth: maxNesting, Keys: math.MaxInt, Values: math.MaxInt, StringBytes: math.MaxInt, Digits: math.MaxInt,
	}}}
	r.s.skipSpace()
	return r
}

// Kind returns the kind of the next value.
func (r *Reader) Kind() Kind {
	if r.s.stopped {
		return ""
	}
	return r.s.kind()
}

// Offset returns the position of the next value.
func (r *Reader) Offset() int { return r.s.at }

// KeyOffset returns the position of the last key.
func (r *Reader) KeyOffset() int { return r.s.keyAt }

// Value reads the next value and returns its text.
func (r *Reader) Value() json.RawMessage {
	begin := r.s.at
	if r.s.stopped || !r.s.scanValue() {
		return nil
	}
	return r.doc[begin:r.s.at]
}

// Text reads the next value if it is a string. Otherwise it returns "".
func (r *Reader) Text() string {
	if r.Kind() != String || !r.s.countValue() {
		return ""
	}
	text, _ := r.s.scanString()
	return text
}

// Object reads the next value if it is an object. It calls member for each key and skips values
// that member does not read.
func (r *Reader) Object(member func(key string)) {
	if r.Kind() == Object {
		r.s.scanObject(func(key string) bool { return r.part(func() { member(key) }) })
	}
}

// Array reads the next value if it is an array. It calls element for each element and skips those
// that it does not read.
func (r *Reader) Array(element func(i int)) {
	if r.Kind() == Array {
		r.s.scanArray(func(i int) bool { return r.part(func() { element(i) }) })
	}
}

// part calls read for a nested value and skips the value if read did not read it.
func (r *Reader) part(read func()) bool {
	begin := r.s.at
	if read(); r.s.at == begin {
		r.Value()
	}
	return !r.s.stopped
}

// End returns the faults, in order, and reports whether the document is well-formed JSON.
func (r *Reader) End() (faults []tasker.Fault, wellFormed bool) {
	if r.s.values == 0 {
		r.Value()
	}
	if r.s.skipSpace(); !r.s.stopped && r.s.at < len(r.s.text) {
		r.s.stop(r.s.at, "unexpected text after the JSON value")
	}
	return r.s.faults, !r.s.stopped
}

// Decode checks a document and returns it as Go values, with numbers as [json.Number], and its
// size as [Measure] does. It decodes no more than the limits allow.
func Decode(doc json.RawMessage, l Limits) (value any, size int, err error) {
	r := NewReader(doc, l, 1)
	value = r.decode()
	if size, err = r.measure(); err != nil {
		return nil, size, err
	}
	return value, size, nil
}

func (r *Reader) decode() any {
	switch r.Kind() {
	case Object:
		object := map[string]any{}
		r.Object(func(key string) { object[key] = r.decode() })
		return object
	case Array:
		list := []any{}
		r.Array(func(int) { list = append(list, r.decode()) })
		return list
	case String:
		return r.Text()
	case Number:
		return json.Number(r.Value())
	case Boolean:
		return string(r.Value()) == "true"
	default:
		r.Value()
		return nil
	}
}
