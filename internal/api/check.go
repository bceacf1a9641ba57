package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/query"
	"tasker.example/tasker/internal/suggest"
)

// check validates a document against the limits of package payload, then against a schema of the
// OpenAPI document. It returns the faults, and reports whether the document is JSON. It decodes nothing,
// so its memory use does not depend on the size of the document. The validator of huma is not used: it
// reports a missing property at the object, mishandles names with a dot, and accepts all spellings of a
// UUID.
func (s *server) check(schema *huma.Schema, doc []byte, limits payload.Limits) (faults []tasker.Fault, wellFormed bool) {
	r := payload.NewReader(doc, limits, maxFaults)
	c := checker{registry: s.registry}
	c.checkValue(schema, r, "")
	faults, wellFormed = r.End()
	if len(faults) > 0 || !wellFormed {
		return faults, wellFormed
	}
	return c.faults, true
}

// checker validates a document against a schema. It stops after maxFaults faults, so that an
// invalid document costs no more than a valid one.
type checker struct {
	registry huma.Registry
	faults   []tasker.Fault
}

func (c *checker) isFull() bool { return len(c.faults) >= maxFaults }

func (c *checker) addFault(path, format string, args ...any) {
	if !c.isFull() {
		c.faults = append(c.faults, tasker.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

var kindsByType = map[string]payload.Kind{
	huma.TypeObject: payload.Object, huma.TypeArray: payload.Array, huma.TypeString: payload.String,
	huma.TypeInteger: payload.Number, huma.TypeNumber: payload.Number, huma.TypeBoolean: payload.Boolean,
}

// checkValue validates the next JSON value of r against s. It may leave parts unread; r skips them.
func (c *checker) checkValue(s *huma.Schema, r *payload.Reader, path string) {
	if c.isFull() {
		return
	}
	for s.Ref != "" {
		s = c.registry.SchemaFromRef(s.Ref)
	}
	is, want := r.Kind(), kindsByType[s.Type]
	switch {
	case s.Discriminator != nil:
		c.checkVariant(s, r, path)
		return
	case len(s.AnyOf) > 0 && is != payload.Null:
		c.checkValue(s.AnyOf[0], r, path) // an optional object; the alternative is null
		return
	case is == payload.Null && s.Nullable:
		return
	case want != "" && is != want:
		c.addFault(path, "must be %s, not %s", want, is)
		return
	}
	switch want {
	case payload.Object:
		c.checkObject(s, r, path)
	case payload.Array:
		c.checkArray(s, r, path)
	case payload.String:
		if wrong := describeViolation(s, r.Text()); wrong != "" {
			c.addFault(path, "%s", wrong)
		}
	case payload.Number:
		c.checkNumber(s, json.Number(r.Value()), path)
	default: // the kind is sufficient
	}
}

// checkVariant validates an object against the schema that its discriminator selects. The discriminator
// may come last, so the object is read twice.
func (c *checker) checkVariant(s *huma.Schema, r *payload.Reader, path string) {
	if is := r.Kind(); is != payload.Object {
		c.addFault(path, "must be an object, not %s", is)
		return
	}
	name, choice := s.Discriminator.PropertyName, ""
	given := payload.Null
	object := r.Value()
	again := payload.NewTolerantReader(object)
	again.Object(func(key string) {
		if key == name {
			given, choice = again.Kind(), again.Text()
		}
	})
	choices := func() string { return strings.Join(slices.Sorted(maps.Keys(s.Discriminator.Mapping)), ", ") }
	switch ref := s.Discriminator.Mapping[choice]; {
	case given == payload.Null:
		c.addFault(joinPath(path, name), "is missing; must be one of %s", choices())
	case ref == "":
		c.addFault(joinPath(path, name), "must be one of %s", choices())
	default:
		c.checkValue(&huma.Schema{Ref: ref}, payload.NewTolerantReader(object), path)
	}
}

func (c *checker) checkObject(s *huma.Schema, r *payload.Reader, path string) {
	first := len(c.faults)
	missing := slices.Clone(s.Required)
	others, open := s.AdditionalProperties.(*huma.Schema)
	r.Object(func(name string) {
		missing = slices.DeleteFunc(missing, func(m string) bool { return m == name })
		property := s.Properties[name]
		switch {
		case c.isFull():
		case r.Kind() == payload.Null && !slices.Contains(s.Required, name) && !open:
			// Same as absent, even for an unknown key.
		case property != nil:
			c.checkValue(property, r, joinPath(path, name))
		case open:
			c.checkValue(others, r, joinPath(path, name))
		default:
			c.addFault(joinPath(path, truncate(name)), "unknown key; known keys are %s", strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", "))
		}
	})
	property := func(f tasker.Fault) string {
		name, _, _ := strings.Cut(strings.TrimPrefix(f.Path[len(path):], "."), ".")
		name, _, _ = strings.Cut(name, "[")
		return name
	}
	slices.SortStableFunc(c.faults[first:], func(a, b tasker.Fault) int { return strings.Compare(property(a), property(b)) })
	// Missing keys come first.
	missing = missing[:min(len(missing), maxFaults-first)]
	for i, name := range missing {
		c.faults = slices.Insert(c.faults, first+i, tasker.Fault{Path: joinPath(path, name), Message: "is missing"})
	}
	c.faults = c.faults[:min(len(c.faults), maxFaults)]
}

func (c *checker) checkArray(s *huma.Schema, r *payload.Reader, path string) {
	first, count := len(c.faults), 0
	r.Array(func(i int) {
		count++
		if c.isFull() || s.MaxItems != nil && i >= *s.MaxItems {
			return // only count
		}
		c.checkValue(s.Items, r, fmt.Sprintf("%s[%d]", path, i))
	})
	if s.MinItems != nil && count < *s.MinItems {
		c.addFault(path, "has %d elements; the minimum is %d", count, *s.MinItems)
	}
	if s.MaxItems != nil && count > *s.MaxItems {
		c.faults = c.faults[:first]
		c.addFault(path, "has %d elements; the limit is %d", count, *s.MaxItems)
	}
}

// describeViolation describes how text violates the schema of a string, or returns "".
func describeViolation(s *huma.Schema, text string) string {
	length := utf8.RuneCountInString(text)
	switch {
	case s.MinLength != nil && strings.TrimSpace(text) == "":
		return "is empty"
	case s.MaxLength != nil && length > *s.MaxLength:
		return fmt.Sprintf("has %d characters; the limit is %d", length, *s.MaxLength)
	case s.Enum != nil && !slices.Contains(s.Enum, any(text)):
		return fmt.Sprintf("must be one of %s, not %q", formatChoices(s.Enum), truncate(text))
	case s.Format == "uuid":
		if _, err := parseID(text); err != nil {
			return fmt.Sprintf("%v, not %q", err, truncate(text))
		}
	case s.Format == "date-time":
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			return fmt.Sprintf("must be a time such as 2026-01-31T12:00:00Z, not %q%s", truncate(text), suggest.EscapedPlus(text))
		}
	}
	return ""
}

func (c *checker) checkNumber(s *huma.Schema, checkNumber json.Number, path string) {
	// Validate the literal: 1.0 is not an integer.
	if _, err := strconv.ParseInt(checkNumber.String(), 10, 64); s.Type == huma.TypeInteger && err != nil {
		c.addFault(path, "must be a whole number, not %s", checkNumber)
		return
	}
	n, err := checkNumber.Float64()
	low, high := s.Minimum, s.Maximum
	switch {
	case err != nil:
		c.addFault(path, "must be a number, not %s", checkNumber)
	case low != nil && high != nil && (n < *low || n > *high):
		c.addFault(path, "must be from %v to %v, not %s", *low, *high, checkNumber)
	case low != nil && n < *low:
		c.addFault(path, "must be at least %v, not %s", *low, checkNumber)
	case high != nil && n > *high:
		c.addFault(path, "must be at most %v, not %s", *high, checkNumber)
	}
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func formatChoices(values []any) string {
	var words []string
	for _, v := range values {
		if v != nil { // nil: nullable
			words = append(words, fmt.Sprint(v))
		}
	}
	return strings.Join(words, ", ")
}

// readQuery parses and validates a query string and adds default values.
func (rt *route) readQuery(raw string) (url.Values, error) {
	sent, err := url.ParseQuery(raw)
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "invalid query: %v", err)
	}
	values := make(url.Values, len(rt.params))
	var faults []tasker.Fault
	for _, p := range rt.params {
		given, ok := sent[p.Name]
		delete(sent, p.Name)
		if !ok {
			values.Set(p.Name, p.Default)
			continue
		}
		values[p.Name] = given
		if wrong := faultOf(p, given); wrong != "" {
			faults = append(faults, tasker.Fault{Path: p.Name, Message: wrong})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		if len(faults) >= maxFaults {
			break
		}
		faults = append(faults, tasker.Fault{Path: truncate(name), Message: "unknown parameter; " + rt.paramNames()})
	}
	if len(faults) == 0 {
		return values, nil
	}
	slices.SortStableFunc(faults, func(a, b tasker.Fault) int { return strings.Compare(a.Path, b.Path) })
	return nil, tasker.Errorf(tasker.Invalid, "invalid query: %s", faults[0]).WithDetails(faults[:min(len(faults), maxFaults)])
}

func (rt *route) paramNames() string {
	if len(rt.params) == 0 {
		return "this path has no parameters"
	}
	names := make([]string, len(rt.params))
	for i, p := range rt.params {
		names[i] = p.Name
	}
	return "known parameters are " + strings.Join(names, ", ")
}

// faultOf describes what is wrong with the values of a parameter, or returns "".
func faultOf(p query.Param, given []string) string {
	switch {
	case len(given) > 1 && p.MaxItems == 0:
		return "must be set only once"
	case len(given) > max(p.MaxItems, 1):
		return fmt.Sprintf("is set %d times; the limit is %d", len(given), p.MaxItems)
	}
	for _, value := range given {
		if wrong := valueFault(p, value); wrong != "" {
			return wrong
		}
	}
	return ""
}

// valueFault describes what is wrong with a single value, or returns "".
func valueFault(p query.Param, value string) string {
	switch p.Kind {
	case query.Int:
		n, err := strconv.Atoi(value)
		if err != nil || n < p.Minimum || n > p.Maximum {
			return fmt.Sprintf("must be a number from %d to %d, not %q", p.Minimum, p.Maximum, truncate(value))
		}
	case query.Bool:
		if value != "true" && value != "false" {
			return fmt.Sprintf("must be true or false, not %q", truncate(value))
		}
	default:
		return cmp.Or(checkText(value, len(value)), describeViolation(paramSchema(p), value))
	}
	return ""
}

// paramSchema returns the schema of one value of a parameter.
func paramSchema(p query.Param) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString}
	switch p.Kind {
	case query.Int:
		low, high, fallback := float64(p.Minimum), float64(p.Maximum), p.Default
		s.Type, s.Minimum, s.Maximum = huma.TypeInteger, &low, &high
		s.Default, _ = strconv.Atoi(fallback)
	case query.Bool:
		s.Type = huma.TypeBoolean
	case query.Time:
		s.Format = "date-time"
	case query.ID:
		s.Format = "uuid"
	default:
		for _, v := range p.Values {
			s.Enum = append(s.Enum, v)
		}
		if p.MaxLength > 0 {
			s.MaxLength = &p.MaxLength
		}
	}
	return s
}
