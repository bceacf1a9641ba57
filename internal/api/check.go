package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
)

// check lists what is wrong with a document that is known to be JSON, by the very
// schema that the OpenAPI document shows. It is not huma's own check because that
// one names the object for a missing property, loses its place at names with a
// dot, and accepts any spelling of a UUID.
//
// Nothing is decoded that the schema says nothing of, so that the memory a check
// takes does not grow with a task's context.
func (s *server) check(schema *huma.Schema, doc []byte) []tasker.Fault {
	c := checker{registry: s.registry}
	c.value(schema, doc, "")
	return c.faults
}

type checker struct {
	registry huma.Registry
	faults   []tasker.Fault
}

func (c *checker) fault(path, format string, args ...any) {
	if len(c.faults) < maxFaults {
		c.faults = append(c.faults, tasker.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

func (c *checker) value(s *huma.Schema, value json.RawMessage, path string) {
	for s.Ref != "" {
		s = c.registry.SchemaFromRef(s.Ref)
	}
	if s.Discriminator != nil {
		c.variant(s, value, path)
		return
	}
	if len(s.AnyOf) > 0 && !isNull(value) {
		c.value(s.AnyOf[0], value, path) // of an optional object; the other is null
		return
	}
	if isNull(value) && s.Nullable {
		return
	}
	switch s.Type {
	case huma.TypeObject:
		c.object(s, value, path)
	case huma.TypeArray:
		c.array(s, value, path)
	case huma.TypeString:
		c.text(s, value, path)
	case huma.TypeInteger, huma.TypeNumber:
		c.number(s, value, path)
	case huma.TypeBoolean:
		if kind(value) != aBoolean {
			c.fault(path, "must be true or false, not %s", kind(value))
		}
	}
}

// variant checks an object of which one property says what the others are.
func (c *checker) variant(s *huma.Schema, value json.RawMessage, path string) {
	if kind(value) != anObject {
		c.fault(path, "must be an object, not %s", kind(value))
		return
	}
	name := s.Discriminator.PropertyName
	choices := strings.Join(slices.Sorted(maps.Keys(s.Discriminator.Mapping)), ", ")
	given, ok := maps.Collect(payload.Members(value))[name]
	if !ok || isNull(given) {
		c.fault(within(path, name), "is missing; it is one of %s", choices)
		return
	}
	choice, _ := text(given)
	ref := s.Discriminator.Mapping[choice]
	if ref == "" {
		c.fault(within(path, name), "must be one of %s", choices)
		return
	}
	c.value(&huma.Schema{Ref: ref}, value, path)
}

func (c *checker) object(s *huma.Schema, value json.RawMessage, path string) {
	if kind(value) != anObject {
		c.fault(path, "must be an object, not %s", kind(value))
		return
	}
	object := maps.Collect(payload.Members(value))
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			c.fault(within(path, name), "is missing")
		}
	}
	others, open := s.AdditionalProperties.(*huma.Schema)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		property := s.Properties[name]
		switch {
		case isNull(object[name]) && !slices.Contains(s.Required, name) && !open:
			// It asks for nothing, whether the key is known or not.
		case property != nil:
			c.value(property, object[name], within(path, name))
		case open:
			c.value(others, object[name], within(path, name))
		default:
			c.fault(within(path, shorten(name)), "is not known here; known are %s", strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", "))
		}
	}
}

func (c *checker) array(s *huma.Schema, value json.RawMessage, path string) {
	if kind(value) != anArray {
		c.fault(path, "must be an array, not %s", kind(value))
		return
	}
	count := 0
	for range payload.Elements(value) {
		count++
	}
	if s.MinItems != nil && count < *s.MinItems {
		c.fault(path, "has %d elements; at least %d are needed", count, *s.MinItems)
	}
	if s.MaxItems != nil && count > *s.MaxItems {
		c.fault(path, "has %d elements; %d is the limit", count, *s.MaxItems)
		return
	}
	i := 0
	for element := range payload.Elements(value) {
		c.value(s.Items, element, fmt.Sprintf("%s[%d]", path, i))
		i++
	}
}

// text returns the string that a value is.
func text(value json.RawMessage) (s string, ok bool) {
	return s, kind(value) == aString && json.Unmarshal(value, &s) == nil
}

func (c *checker) text(s *huma.Schema, value json.RawMessage, path string) {
	text, ok := text(value)
	if !ok {
		c.fault(path, "must be a string, not %s", kind(value))
		return
	}
	length := utf8.RuneCountInString(text)
	switch {
	case s.MinLength != nil && strings.TrimSpace(text) == "":
		c.fault(path, "is empty")
	case s.MaxLength != nil && length > *s.MaxLength:
		c.fault(path, "has %d characters; %d is the limit", length, *s.MaxLength)
	case s.Enum != nil && !slices.Contains(s.Enum, any(text)):
		c.fault(path, "must be one of %s, not %q", oneOf(s.Enum), shorten(text))
	case s.Format == "uuid":
		if _, err := parseID(text); err != nil {
			c.fault(path, "%v, not %q", err, shorten(text))
		}
	case s.Format == "date-time":
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			c.fault(path, "must be a time such as 2026-01-31T12:00:00Z, not %q", shorten(text))
		}
	}
}

func (c *checker) number(s *huma.Schema, value json.RawMessage, path string) {
	if kind(value) != aNumber {
		c.fault(path, "must be a number, not %s", kind(value))
		return
	}
	number := json.Number(value) // judged as it is written
	if _, err := strconv.ParseInt(number.String(), 10, 64); s.Type == huma.TypeInteger && err != nil {
		c.fault(path, "must be a whole number, not %s", number)
		return
	}
	n, err := number.Float64()
	low, high := s.Minimum, s.Maximum
	switch {
	case err != nil:
		c.fault(path, "must be a number, not %s", number)
	case low != nil && high != nil && (n < *low || n > *high):
		c.fault(path, "must be from %v to %v, not %s", *low, *high, number)
	case low != nil && n < *low:
		c.fault(path, "must be at least %v, not %s", *low, number)
	case high != nil && n > *high:
		c.fault(path, "must be at most %v, not %s", *high, number)
	}
}

func within(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// The kinds of JSON values.
const (
	aNull    = "null"
	aBoolean = "true or false"
	aNumber  = "a number"
	aString  = "a string"
	anArray  = "an array"
	anObject = "an object"
)

// kind names the kind of a value that is known to be JSON.
func kind(value json.RawMessage) string {
	switch bytes.TrimSpace(value)[0] {
	case 'n':
		return aNull
	case 't', 'f':
		return aBoolean
	case '"':
		return aString
	case '[':
		return anArray
	case '{':
		return anObject
	default:
		return aNumber
	}
}

func isNull(value json.RawMessage) bool { return kind(value) == aNull }

func oneOf(values []any) string {
	var words []string
	for _, v := range values {
		if v != nil { // which an optional property may be
			words = append(words, fmt.Sprint(v))
		}
	}
	return strings.Join(words, ", ")
}
