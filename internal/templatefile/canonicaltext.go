package templatefile

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"tasker.example/tasker/internal/number"
)

// maxCanonical is a limit, in bytes, that no document's canonical text reaches.
const maxCanonical = 1 << 30

// canonicalizer formats JSON values so that values that are equal in JSON Schema have the same
// text: members are sorted, and 1, 1.0 and 10e-1 are one number. It stops if the text exceeds
// limit.
type canonicalizer struct {
	text   []byte
	limit  int
	charge func(cost int)
}

// canonicalize returns the canonical text of a value. ok is false if it would exceed limit.
func canonicalize(v any, limit int, charge func(cost int)) (text string, ok bool) {
	c := canonicalizer{limit: limit, charge: charge}
	ok = c.writeValue(v)
	return string(c.text), ok
}

func (c *canonicalizer) writeValue(v any) bool {
	switch v := v.(type) {
	case nil:
		return c.write("n")
	case bool:
		return c.write(strconv.FormatBool(v)[:1])
	case string:
		return c.write(`"`, strconv.Itoa(len(v)), ":", v)
	case json.Number:
		d := number.Parse(string(v))
		return c.write("+", d.Sign(), d.Digits, "e", strconv.Itoa(d.Exponent))
	case []any:
		if !c.write("[", strconv.Itoa(len(v)), ":") {
			return false
		}
		for _, item := range v {
			if !c.writeValue(item) {
				return false
			}
		}
		return true
	case map[string]any:
		return c.writeObject(v)
	default: // unreachable: a JSON document has no other values
		return false
	}
}

func (c *canonicalizer) writeObject(v map[string]any) bool {
	if len(v) > c.limit || !c.write("{", strconv.Itoa(len(v)), ":") {
		return false
	}
	c.charge(len(v))
	for _, key := range slices.Sorted(maps.Keys(v)) {
		if !c.writeValue(key) || !c.writeValue(v[key]) {
			return false
		}
	}
	return true
}

// write appends one token. Tokens contain their length, so that adjacent tokens are unambiguous.
func (c *canonicalizer) write(parts ...string) bool {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if len(c.text)+size > c.limit {
		return false
	}
	c.charge(1 + size/64)
	for _, part := range parts {
		c.text = append(c.text, part...)
	}
	return true
}

func isInteger(n json.Number) bool { return number.Parse(string(n)).Exponent >= 0 }
