package payload

import (
	"encoding/json"
	"errors"
	"strconv"

	"tasker.example/tasker/internal/number"
)

// Canonical writes a document in one form for each value: two documents have the
// same form exactly when they are equal. The order of keys, white space,
// escapes and the notation of a number make no difference; every digit does,
// also beyond what a 64-bit float can hold. The document has passed [Check].
func Canonical(doc json.RawMessage) ([]byte, error) { return CanonicalBy(doc, canonicalNumber) }

// CanonicalBy is [Canonical] with a notation for numbers.
func CanonicalBy(doc json.RawMessage, spell func(text string) string) ([]byte, error) {
	r := NewTolerantReader(doc)
	value := r.decode()
	if _, wellFormed := r.End(); !wellFormed {
		return nil, errors.New("read JSON: the document is malformed")
	}
	return json.Marshal(canonical(value, spell))
}

// CanonicalValue is [Canonical] for what [Decode] returned. It changes the value.
func CanonicalValue(value any) ([]byte, error) {
	return json.Marshal(canonical(value, canonicalNumber))
}

// canonical replaces the numbers in a decoded document; [json.Marshal] sorts keys.
func canonical(value any, spell func(text string) string) any {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			v[key] = canonical(element, spell)
		}
	case []any:
		for i, element := range v {
			v[i] = canonical(element, spell)
		}
	case json.Number:
		return json.Number(spell(v.String()))
	}
	return value
}

// canonicalNumber writes a number as its digits, without zeros at either end, and
// an exponent: 1, 1.0 and 10e-1 are all "1".
func canonicalNumber(text string) string {
	d := number.Parse(text)
	switch {
	case d.Digits == "":
		return "0"
	case d.Exponent == 0:
		return d.Sign() + d.Digits
	}
	return d.Sign() + d.Digits + "e" + strconv.Itoa(d.Exponent)
}
