package templatefile

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"

	"go.yaml.in/yaml/v3"
)

// appendJSON appends the value as JSON. Numbers keep all their digits.
func (v value) appendJSON(out []byte) []byte {
	switch v.node.Kind {
	case yaml.MappingNode:
		out = append(out, '{')
		for i := 0; i+1 < len(v.node.Content); i += 2 {
			if i > 0 {
				out = append(out, ',')
			}
			key, child := v.node.Content[i], v.node.Content[i+1]
			out = append(appendString(out, v.faults.nameOf(key)), ':')
			out = v.member(key, child).appendJSON(out)
		}
		return append(out, '}')
	case yaml.SequenceNode:
		out = append(out, '[')
		for i, item := range v.node.Content {
			if i > 0 {
				out = append(out, ',')
			}
			out = v.at(i, item).appendJSON(out)
		}
		return append(out, ']')
	default:
		return v.appendScalar(out)
	}
}

func (v value) appendScalar(out []byte) []byte {
	if v.node.Tag == "!!str" && v.node.Style == 0 && jsonNumber.MatchString(v.node.Value) {
		return append(out, v.number()...) // the YAML library makes text of a number that is too large for it
	}
	switch v.node.Tag {
	case "!!null":
		return append(out, "null"...)
	case "!!bool":
		return append(out, strings.ToLower(v.node.Value)...)
	case "!!int", "!!float":
		return append(out, v.number()...)
	default:
		return appendString(out, v.node.Value)
	}
}

func appendString(out []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil { // unreachable: any string has a JSON form
		return append(out, `""`...)
	}
	return append(out, quoted...)
}

var (
	jsonNumber  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
	leadingZero = regexp.MustCompile(`^[-+]?0[0-9_]`)
	bareDecimal = regexp.MustCompile(`^([-+]?)([0-9]*)(?:\.([0-9]*))?([eE][-+]?[0-9]+)?$`)
)

// number returns a YAML number as JSON spells it.
func (v value) number() string {
	text := v.node.Value
	switch {
	case jsonNumber.MatchString(text):
	case leadingZero.MatchString(text):
		v.fault("the number %s begins with 0, which some read as octal; leave the 0 out, or write it in quotes", quote(text))
		return "0"
	default:
		text = respell(text)
	}
	if text == "" {
		v.fault("%s is not a number that JSON can hold", quote(v.node.Value))
		return "0"
	}
	if wrong := payload.NumberFault(text, documentLimits); wrong != "" {
		v.fault("%s", wrong)
	}
	return text
}

// respell turns +1, 0x1F, 1_000 and .5 into JSON; "" when it cannot.
func respell(text string) string {
	plain := strings.ReplaceAll(text, "_", "")
	if len(plain) > 2*tasker.MaxNumberDigits {
		return "" // too long in any spelling, and costly to calculate with
	}
	if whole, ok := new(big.Int).SetString(plain, 0); ok {
		return whole.String()
	}
	m := bareDecimal.FindStringSubmatch(plain)
	if m == nil || m[2]+m[3] == "" {
		return ""
	}
	number := strings.TrimPrefix(m[1], "+") + cmpOr(m[2], "0")
	if m[3] != "" {
		number += "." + m[3]
	}
	return number + m[4]
}

func cmpOr(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
