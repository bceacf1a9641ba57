// Package payload judges JSON that strangers send: contexts of tasks, results
// of steps, metadata. What [Check] accepts, the database can store and every
// reader can decode: no NUL, no lone surrogate, no key twice, no number that
// overflows, nothing nested or repeated without end.
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
	"fmt"

	"tasker"
)

// Limits bound one document. A field that is zero or less has its default.
type Limits struct {
	Bytes       int // of the whole document: 1 MiB
	Depth       int // objects and arrays inside one another: 64
	Keys        int // of all objects together: 10 000
	StringBytes int // of one string or key, escapes undone: 256 KiB
	NumberBytes int // of one number as it is written: 32
	Exponent    int // of one number, as it is written, up or down: 308
}

// DefaultLimits returns the limits that hold where a caller names none.
func DefaultLimits() Limits {
	return Limits{
		Bytes: 1 << 20, Depth: 64, Keys: 10_000, StringBytes: 256 << 10, NumberBytes: 32, Exponent: 308,
	}
}

func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	return Limits{
		Bytes:       cmp.Or(max(l.Bytes, 0), d.Bytes),
		Depth:       cmp.Or(max(l.Depth, 0), d.Depth),
		Keys:        cmp.Or(max(l.Keys, 0), d.Keys),
		StringBytes: cmp.Or(max(l.StringBytes, 0), d.StringBytes),
		NumberBytes: cmp.Or(max(l.NumberBytes, 0), d.NumberBytes),
		Exponent:    cmp.Or(max(l.Exponent, 0), d.Exponent),
	}
}

// Check returns nil for a document that can be stored and read back, and
// otherwise an error that names the first place where it cannot: TooLarge for
// its size, Invalid for all else, with one [tasker.Fault] as details.
func Check(doc json.RawMessage, l Limits) error {
	l = l.orDefault()
	if len(doc) > l.Bytes {
		return tasker.Errorf(tasker.TooLarge, "the document has %d bytes; %d is the limit", len(doc), l.Bytes)
	}
	faults, _ := Faults(doc, l, 1)
	if len(faults) == 0 {
		return nil
	}
	f := faults[0]
	where := cmp.Or(f.Path, "the document")
	return tasker.Errorf(tasker.Invalid, "%s: %s (line %d, column %d)", where, f.Message, f.Line, f.Column).
		WithDetails(faults)
}

// Faults lists what is wrong with doc, at most n faults in the order of the
// document, and says whether it is JSON at all: whether the only faults are
// those that leave its structure whole. The size of doc is the caller's to judge.
func Faults(doc []byte, l Limits, n int) (faults []tasker.Fault, wellFormed bool) {
	s := &scanner{text: string(doc), limits: l.orDefault(), most: n, seen: map[member]struct{}{}}
	wellFormed = s.document()
	return s.faults, wellFormed
}

// NumberFault says what is wrong with a number that JSON's grammar allows, and
// nothing when all is well.
func NumberFault(number string, l Limits) string {
	l = l.orDefault()
	if len(number) > l.NumberBytes {
		return fmt.Sprintf("a number of %d characters; %d is the limit", len(number), l.NumberBytes)
	}
	if overflows(number, l.Exponent) {
		return fmt.Sprintf("the number %s is larger or finer than a 64-bit float can hold", number)
	}
	return ""
}
