package payload

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// Canonical writes a document in one form for each value: two documents have the
// same form exactly when they are equal. The order of keys, white space,
// escapes and the notation of a number make no difference; every digit does,
// also beyond what a 64-bit float can hold. The document has passed [Check].
func Canonical(doc json.RawMessage) ([]byte, error) { return CanonicalBy(doc, canonicalNumber) }

// CanonicalBy is [Canonical] with a notation for numbers.
func CanonicalBy(doc json.RawMessage, number func(text string) string) ([]byte, error) {
	r := NewTolerantReader(doc)
	value := r.decode()
	if _, wellFormed := r.End(); !wellFormed {
		return nil, errors.New("read JSON: the document is malformed")
	}
	return json.Marshal(canonical(value, number))
}

// CanonicalValue is [Canonical] for what [Decode] returned. It changes the value.
func CanonicalValue(value any) ([]byte, error) {
	return json.Marshal(canonical(value, canonicalNumber))
}

// canonical replaces the numbers in a decoded document; [json.Marshal] sorts keys.
func canonical(value any, number func(text string) string) any {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			v[key] = canonical(element, number)
		}
	case []any:
		for i, element := range v {
			v[i] = canonical(element, number)
		}
	case json.Number:
		return json.Number(number(v.String()))
	}
	return value
}

// canonicalNumber writes a number as its digits, without zeros at either end, and
// an exponent: 1, 1.0 and 10e-1 are all "1".
func canonicalNumber(text string) string {
	sign, digits, exponent := Decimal(text)
	switch {
	case digits == "":
		return "0"
	case exponent == 0:
		return sign + digits
	}
	return sign + digits + "e" + strconv.Itoa(exponent)
}

// Decimal takes a number of JSON apart: its sign, which is empty or a minus, its digits
// without zeros at either end, and the power of ten that the last of them stands for.
// Zero has no digits and no sign.
func Decimal(text string) (sign, digits string, exponent int) {
	text, negative := strings.CutPrefix(text, "-")
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exponent, _ = strconv.Atoi(text[i+1:]) // Check has bounded it
		text = text[:i]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	exponent -= len(fraction)
	digits = strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return "", "", 0
	}
	if negative {
		sign = "-"
	}
	return sign, short, exponent + len(digits) - len(short)
}
