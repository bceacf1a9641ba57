// Package payload validates JSON from outside the server: request bodies, contexts, results and
// metadata. It rejects what PostgreSQL cannot store or readers cannot decode.
//
// The rules apply to the document as read back from a jsonb column. A document that is accepted is
// accepted again after a round trip through the database.
//
// Input is rejected with the position of the fault. Reports of failures are never rejected;
// [CleanText] and [CleanJSON] preserve what can be stored.
package payload

import (
	"cmp"
	"encoding/json"

	"tasker.example/tasker"
)

// Limits contains the limits for one document. A default replaces fields that are not positive.
type Limits struct {
	Bytes       int // of the document as read back; default [tasker.MaxDocumentBytes]
	Depth       int // nesting of objects and arrays; default [tasker.MaxDocumentDepth]
	Keys        int // of all objects; default [tasker.MaxDocumentKeys]
	Values      int // including nested ones; default [tasker.MaxDocumentValues]
	StringBytes int // of one unescaped string or key; default [tasker.MaxStringBytes]
	Digits      int // of one number without exponent; default [tasker.MaxNumberDigits]
}

// DefaultLimits returns the default limits.
func DefaultLimits() Limits {
	return Limits{
		Bytes: tasker.MaxDocumentBytes, Depth: tasker.MaxDocumentDepth, Keys: tasker.MaxDocumentKeys,
		Values: tasker.MaxDocumentValues, StringBytes: tasker.MaxStringBytes, Digits: tasker.MaxNumberDigits,
	}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	return Limits{
		Bytes:       cmp.Or(max(l.Bytes, 0), d.Bytes),
		Depth:       cmp.Or(max(l.Depth, 0), d.Depth),
		Keys:        cmp.Or(max(l.Keys, 0), d.Keys),
		Values:      cmp.Or(max(l.Values, 0), d.Values),
		StringBytes: cmp.Or(max(l.StringBytes, 0), d.StringBytes),
		Digits:      cmp.Or(max(l.Digits, 0), d.Digits),
	}
}

// Check returns nil if a document can be stored and read back. Otherwise it returns TooLarge or
// Invalid with the first fault as details, a slice of [tasker.Fault].
func Check(doc json.RawMessage, l Limits) error {
	_, err := Measure(doc, l)
	return err
}

// Measure is like [Check] but also returns the size of the document when it is read back from a
// jsonb column.
func Measure(doc json.RawMessage, l Limits) (bytes int, err error) {
	r := NewReader(doc, l, 1)
	r.Value()
	return r.measure()
}

// measure returns the size of the document and its first fault.
func (r *Reader) measure() (bytes int, err error) {
	faults, _ := r.End()
	if r.s.size > r.s.limits.Bytes {
		return r.s.size, tasker.Errorf(tasker.TooLarge,
			"the document has %d bytes in the database's encoding; the limit is %d", r.s.size, r.s.limits.Bytes)
	}
	if len(faults) == 0 {
		return r.s.size, nil
	}
	f := faults[0]
	where := cmp.Or(f.Path, "the document")
	return r.s.size, tasker.Errorf(tasker.Invalid, "%s: %s (line %d, column %d)", where, f.Message, f.Line, f.Column).
		WithDetails(faults)
}

// Faults returns up to n faults of doc, in order, and reports whether it is well-formed JSON. It
// does not check the size.
func Faults(doc []byte, l Limits, n int) (faults []tasker.Fault, wellFormed bool) {
	r := NewReader(doc, l, n)
	r.Value()
	return r.End()
}

// CheckNumber returns why a number in JSON syntax is rejected, or "".
func CheckNumber(number string, l Limits) string {
	return parseNumber(number).checkLimits(number, l.withDefaults())
}
