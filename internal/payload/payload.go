// Package payload validates JSON from outside the server: request bodies, contexts, results and
// metadata. It rejects what PostgreSQL cannot store or readers cannot decode.
//
// The rules hold for the document as it is read back from a jsonb column, not as
// it was sent, so whatever is accepted is accepted again after a round trip
// through the database.
//
// On the way in, what is wrong is refused, with its place. On the way of a
// failure nothing is refused, because a report of what went wrong must never
// be lost for its form: [CleanText] and [CleanJSON] keep what can be kept.
//
// The package knows nothing of what a document means.
package payload

import (
	"cmp"
	"encoding/json"

	"tasker.example/tasker"
)

// Limits bound one document. A field that is zero or less has its default.
type Limits struct {
	Bytes       int // of the whole document as it is read back: [tasker.MaxDocumentBytes]
	Depth       int // objects and arrays inside one another: [tasker.MaxDocumentDepth]
	Keys        int // of all objects together: [tasker.MaxDocumentKeys]
	Values      int // of all kinds, nested ones included: [tasker.MaxDocumentValues]
	StringBytes int // of one string or key, escapes undone: [tasker.MaxStringBytes]
	Digits      int // of one number written out without an exponent: [tasker.MaxNumberDigits]
}

// DefaultLimits returns the limits that hold where a caller names none.
func DefaultLimits() Limits {
	return Limits{
		Bytes: tasker.MaxDocumentBytes, Depth: tasker.MaxDocumentDepth, Keys: tasker.MaxDocumentKeys,
		Values: tasker.MaxDocumentValues, StringBytes: tasker.MaxStringBytes, Digits: tasker.MaxNumberDigits,
	}
}

func (l Limits) orDefault() Limits {
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

// Check returns nil for a document that can be stored and read back, and
// otherwise an error that names the first place where it cannot: TooLarge for
// its size, Invalid for all else, with one [tasker.Fault] as details.
func Check(doc json.RawMessage, l Limits) error {
	_, err := Measure(doc, l)
	return err
}

// Measure checks a document as [Check] does and returns the bytes it has when it
// is read back: the length of PostgreSQL's text of it as jsonb.
func Measure(doc json.RawMessage, l Limits) (bytes int, err error) {
	r := NewReader(doc, l, 1)
	r.Value()
	return r.measured()
}

// measured returns the size of the document that was read, and its first fault.
func (r *Reader) measured() (bytes int, err error) {
	faults, _ := r.End()
	if r.s.size > r.s.limits.Bytes {
		return r.s.size, tasker.Errorf(tasker.TooLarge,
			"the document has %d bytes as the database spells it; %d is the limit", r.s.size, r.s.limits.Bytes)
	}
	if len(faults) == 0 {
		return r.s.size, nil
	}
	f := faults[0]
	where := cmp.Or(f.Path, "the document")
	return r.s.size, tasker.Errorf(tasker.Invalid, "%s: %s (line %d, column %d)", where, f.Message, f.Line, f.Column).
		WithDetails(faults)
}

// Faults lists what is wrong with doc, at most n faults in the order of the
// document, and says whether it is JSON at all: whether the only faults are
// those that leave its structure whole. The size of doc is the caller's to judge.
func Faults(doc []byte, l Limits, n int) (faults []tasker.Fault, wellFormed bool) {
	r := NewReader(doc, l, n)
	r.Value()
	return r.End()
}

// NumberFault says what is wrong with a number that JSON's grammar allows, and
// nothing when all is well.
func NumberFault(number string, l Limits) string {
	return spell(number).fault(number, l.orDefault())
}
