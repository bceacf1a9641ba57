package payload

import (
	"encoding/json"
	"errors"
	"strconv"

	"tasker.example/tasker/internal/number"
)

// Canonical returns the canonical form of a document, which is the same for equal documents. Key
// order, white space, escapes and the notation of numbers make no difference. Every digit does,
// even beyond the precision of 64-bit floats. The document must have passed [Check].
func Canonical(doc json.RawMessage) ([]byte, error) { return CanonicalBy(doc, canonicalizeNumber) }

// CanonicalBy is like [Canonical] with a custom format for numbers.
func CanonicalBy(doc json.RawMessage, format func(text string) string) ([]byte, error) {
	r := NewTolerantReader(doc)
	value := r.decode()
	if _, wellFormed := r.End(); !wellFormed {
		return nil, errors.New("read JSON: malformed document")
	}
	return json.Marshal(canonicalize(value, format))
}

// CanonicalValue is like [Canonical] for a result of [Decode]. It modifies the value.
func CanonicalValue(value any) ([]byte, error) {
	return json.Marshal(canonicalize(value, canonicalizeNumber))
}

// canonicalize formats the numbers in a decoded document canonically. [json.Marshal] will sort the
// keys.
func canonicalize(value any, format func(text string) string) any {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			v[key] = canonicalize(element, format)
		}
	case []any:
		for i, element := range v {
			v[i] = canonicalize(element, format)
		}
	case json.Number:
		return json.Number(format(v.String()))
	}
	return value
}

// canonicalizeNumber formats a number as its significant digits and an exponent: 1, 1.0 and 10e-1
// are all "1".
func canonicalizeNumber(text string) string {
	d := number.Parse(text)
	switch {
	case d.Digits == "":
		return "0"
	case d.Exponent == 0:
		return d.Sign() + d.Digits
	}
	return d.Sign() + d.Digits + "e" + strconv.Itoa(d.Exponent)
}
