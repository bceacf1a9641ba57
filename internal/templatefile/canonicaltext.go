package templatefile

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"tasker.example/tasker/internal/number"
)

// maxCanonical is more than the text of any document: each byte of it makes a few.
const maxCanonical = 1 << 30

// A canonicalizer writes JSON values so that two that JSON Schema takes for equal
// are written alike: members are sorted, and 1, 1.0 and 10e-1 are one number. It
// stops when the text is longer than most.
type canonicalizer struct {
	text   []byte
	most   int
	charge func(cost int)
}

// canonicalText writes a value. It is not ok when the text would be longer than most.
func canonicalText(v any, most int, charge func(cost int)) (text string, ok bool) {
	c := canonicalizer{most: most, charge: charge}
	ok = c.value(v)
	return string(c.text), ok
}

func (c *canonicalizer) value(v any) bool {
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
			if !c.value(item) {
				return false
			}
		}
		return true
	case map[string]any:
		return c.object(v)
	default: // unreachable: a JSON document has nothing else
		return false
	}
}

func (c *canonicalizer) object(v map[string]any) bool {
	if len(v) > c.most || !c.write("{", strconv.Itoa(len(v)), ":") {
		return false
	}
	c.charge(len(v))
	for _, key := range slices.Sorted(maps.Keys(v)) {
		if !c.value(key) || !c.value(v[key]) {
			return false
		}
	}
	return true
}

// write appends one token. Each says how long it is, so none runs into the next.
func (c *canonicalizer) write(parts ...string) bool {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if len(c.text)+size > c.most {
		return false
	}
	c.charge(1 + size/64)
	for _, part := range parts {
		c.text = append(c.text, part...)
	}
	return true
}

// isInteger reports whether a number has no fraction.
func isInteger(n json.Number) bool {
	return number.Parse(string(n)).Exponent >= 0
}
