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

	"tasker"
)

// check lists what is wrong with a document, by the very schema that the OpenAPI
// document shows. It is not huma's own check because that one names the object
// for a missing property, loses its place at names with a dot, and accepts any
// spelling of a UUID.
func (s *server) check(schema *huma.Schema, doc []byte) []tasker.Fault {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber() // numbers are judged as they are written
	var value any
	if err := dec.Decode(&value); err != nil {
		return []tasker.Fault{{Message: err.Error()}}
	}
	c := checker{registry: s.registry}
	c.value(schema, value, "")
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

func (c *checker) value(s *huma.Schema, value any, path string) {
	for s.Ref != "" {
		s = c.registry.SchemaFromRef(s.Ref)
	}
	if s.Discriminator != nil {
		c.variant(s, value, path)
		return
	}
	if value == nil && s.Nullable {
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
		if _, ok := value.(bool); !ok {
			c.fault(path, "must be true or false, not %s", kind(value))
		}
	}
}

// variant checks an object of which one property says what the others are.
func (c *checker) variant(s *huma.Schema, value any, path string) {
	object, ok := value.(map[string]any)
	if !ok {
		c.fault(path, "must be an object, not %s", kind(value))
		return
	}
	name := s.Discriminator.PropertyName
	choices := strings.Join(slices.Sorted(maps.Keys(s.Discriminator.Mapping)), ", ")
	choice, ok := object[name].(string)
	ref := s.Discriminator.Mapping[choice]
	switch {
	case object[name] == nil:
		c.fault(within(path, name), "is missing; it is one of %s", choices)
	case !ok || ref == "":
		c.fault(within(path, name), "must be one of %s", choices)
	default:
		c.value(&huma.Schema{Ref: ref}, value, path)
	}
}

func (c *checker) object(s *huma.Schema, value any, path string) {
	object, ok := value.(map[string]any)
	if !ok {
		c.fault(path, "must be an object, not %s", kind(value))
		return
	}
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			c.fault(within(path, name), "is missing")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		property := s.Properties[name]
		others, open := s.AdditionalProperties.(*huma.Schema)
		switch {
		case property != nil && object[name] == nil && !slices.Contains(s.Required, name):
			// null is as good as absent
		case property != nil:
			c.value(property, object[name], within(path, name))
		case open:
			c.value(others, object[name], within(path, name))
		default:
			c.fault(within(path, shorten(name)), "is not known here; known are %s", strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", "))
		}
	}
}

func (c *checker) array(s *huma.Schema, value any, path string) {
	list, ok := value.([]any)
	if !ok {
		c.fault(path, "must be an array, not %s", kind(value))
		return
	}
	if s.MinItems != nil && len(list) < *s.MinItems {
		c.fault(path, "has %d elements; at least %d are needed", len(list), *s.MinItems)
	}
	if s.MaxItems != nil && len(list) > *s.MaxItems {
		c.fault(path, "has %d elements; %d is the limit", len(list), *s.MaxItems)
		return
	}
	for i, element := range list {
		c.value(s.Items, element, fmt.Sprintf("%s[%d]", path, i))
	}
}

func (c *checker) text(s *huma.Schema, value any, path string) {
	text, ok := value.(string)
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

func (c *checker) number(s *huma.Schema, value any, path string) {
	number, ok := value.(json.Number)
	if !ok {
		c.fault(path, "must be a number, not %s", kind(value))
		return
	}
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

func kind(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case json.Number:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "an array"
	default:
		return "an object"
	}
}

func oneOf(values []any) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = fmt.Sprint(v)
	}
	return strings.Join(words, ", ")
}
