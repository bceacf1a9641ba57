package payload

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// Canonical spells a document in one form for each value: two documents have the
// same spelling exactly when they are equal. The order of keys, white space,
// escapes and the notation of a number make no difference; every digit does,
// also beyond what a 64-bit float can hold. The document has passed [Check].
func Canonical(doc json.RawMessage) ([]byte, error) {
	r := NewTolerantReader(doc)
	value := r.decode()
	if _, wellFormed := r.End(); !wellFormed {
		return nil, errors.New("read JSON: the document is malformed")
	}
	return CanonicalValue(value)
}

// CanonicalValue is [Canonical] for what [Decode] returned. It changes the value.
func CanonicalValue(value any) ([]byte, error) { return json.Marshal(canonical(value)) }

// canonical replaces the numbers in a decoded document; [json.Marshal] sorts keys.
func canonical(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			v[key] = canonical(element)
		}
	case []any:
		for i, element := range v {
			v[i] = canonical(element)
		}
	case json.Number:
		return json.Number(canonicalNumber(v.String()))
	}
	return value
}

// canonicalNumber spells a number as its digits, without zeros at either end, and
// an exponent: 1, 1.0 and 10e-1 are all "1".
func canonicalNumber(text string) string {
	sign := ""
	if rest, negative := strings.CutPrefix(text, "-"); negative {
		sign, text = "-", rest
	}
	exponent := 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exponent, _ = strconv.Atoi(text[i+1:]) // Check has bounded it
		text = text[:i]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	exponent -= len(fraction)
	digits := strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return "0"
	}
	if exponent += len(digits) - len(short); exponent == 0 {
		return sign + short
	}
	return sign + short + "e" + strconv.Itoa(exponent)
}
