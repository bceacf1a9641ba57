package payload

import (
	"encoding/json"
	"iter"
	"slices"
)

// Members yields the keys and values of an object, and Elements the values of an
// array, as parts of doc, so that a reader who wants little of a large document
// decodes no more than that. The document must be one that [Faults] found whole;
// a value of another kind has none.
func Members(doc []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		at := space(doc, 0)
		if at == len(doc) || doc[at] != '{' {
			return
		}
		for at = space(doc, at+1); at < len(doc) && doc[at] == '"'; {
			end := valueEnd(doc, at)
			key := unquote(doc[at:end])
			at = space(doc, space(doc, end)+1) // past the colon
			end = valueEnd(doc, at)
			if !yield(key, doc[at:end]) {
				return
			}
			at = space(doc, space(doc, end)+1) // past the comma or the end
		}
	}
}

// Elements yields the values of an array; see [Members].
func Elements(doc []byte) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		at := space(doc, 0)
		if at == len(doc) || doc[at] != '[' {
			return
		}
		at = space(doc, at+1)
		for at < len(doc) && doc[at] != ']' {
			end := valueEnd(doc, at)
			if !yield(doc[at:end]) {
				return
			}
			at = space(doc, end)
			if at == len(doc) || doc[at] == ']' {
				return
			}
			at = space(doc, at+1)
		}
	}
}

// space returns the offset of the first byte from at on that is no white space.
func space(doc []byte, at int) int {
	for at < len(doc) && (doc[at] == ' ' || doc[at] == '\t' || doc[at] == '\n' || doc[at] == '\r') {
		at++
	}
	return at
}

// valueEnd returns the offset behind the value that begins at at.
func valueEnd(doc []byte, at int) int {
	depth := 0
	for at < len(doc) {
		switch doc[at] {
		case '"':
			at = stringEnd(doc, at)
			if depth == 0 {
				return at
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // of the object or array around a plain value
				return at
			}
			if depth--; depth == 0 {
				return at + 1
			}
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return at
			}
		}
		at++
	}
	return at
}

func stringEnd(doc []byte, at int) int {
	for at++; at < len(doc) && doc[at] != '"'; at++ {
		if doc[at] == '\\' {
			at++
		}
	}
	return min(at+1, len(doc))
}

func unquote(literal []byte) string {
	text := literal[1 : len(literal)-1]
	if !slices.Contains(text, '\\') {
		return string(text)
	}
	var s string
	_ = json.Unmarshal(literal, &s) // a well-formed literal has no error
	return s
}
