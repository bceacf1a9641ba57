package api

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"tasker.example/tasker"
)

// Bounds of every list.
const (
	defaultLimit = 50
	maxLimit     = 1000
	maxOffset    = 10_000_000
)

func limitParam(fallback int) param {
	return intParam("limit", "Elements at most.", 1, maxLimit, fallback)
}

func offsetParam() param {
	return intParam("offset", "Elements to pass over.", 0, maxOffset, 0)
}

func intParam(name, about string, least, most, fallback int) param {
	low, high := float64(least), float64(most)
	return param{name: name, about: about, fallback: strconv.Itoa(fallback), schema: &huma.Schema{
		Type: huma.TypeInteger, Minimum: &low, Maximum: &high, Default: fallback,
	}}
}

func boolParam(name, about string) param {
	return param{name: name, about: about, schema: &huma.Schema{Type: huma.TypeBoolean}}
}

func textParam(name, about string, most int) param {
	return param{name: name, about: about, schema: &huma.Schema{Type: huma.TypeString, MaxLength: &most}}
}

// idParam takes a UUID.
func idParam(name, about string) param {
	return param{name: name, about: about, schema: &huma.Schema{Type: huma.TypeString, Format: "uuid"}}
}

// choiceParam takes one of the values of an enumeration.
func choiceParam[T ~string](name, about string, values []T) param {
	s := &huma.Schema{Type: huma.TypeString}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return param{name: name, about: about, schema: s}
}

// readQuery checks a query, all of it, and fills in what it leaves out.
func (rt *route) readQuery(raw string) (map[string]string, error) {
	sent, err := url.ParseQuery(raw)
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "the query cannot be read: %v", err)
	}
	values := make(map[string]string, len(rt.params))
	var faults []tasker.Fault
	for _, p := range rt.params {
		given, ok := sent[p.name]
		delete(sent, p.name)
		if !ok {
			values[p.name] = p.fallback
			continue
		}
		values[p.name] = given[0]
		wrong := p.fault(given[0])
		if len(given) > 1 {
			wrong = "is given more than once"
		}
		if wrong != "" {
			faults = append(faults, tasker.Fault{Path: p.name, Message: wrong})
		}
	}
	for name := range sent {
		faults = append(faults, tasker.Fault{Path: shorten(name), Message: "is not a parameter here; " + rt.paramNames()})
	}
	if len(faults) == 0 {
		return values, nil
	}
	slices.SortStableFunc(faults, func(a, b tasker.Fault) int { return strings.Compare(a.Path, b.Path) })
	return nil, tasker.Errorf(tasker.Invalid, "the query is not valid: %s", faults[0]).WithDetails(faults[:min(len(faults), maxFaults)])
}

func (rt *route) paramNames() string {
	if len(rt.params) == 0 {
		return "there are none"
	}
	names := make([]string, len(rt.params))
	for i, p := range rt.params {
		names[i] = p.name
	}
	return "there are " + strings.Join(names, ", ")
}

// fault says what is wrong with a value.
func (p param) fault(value string) string {
	switch p.schema.Type {
	case huma.TypeInteger:
		n, err := strconv.Atoi(value)
		if low, high := int(*p.schema.Minimum), int(*p.schema.Maximum); err != nil || n < low || n > high {
			return fmt.Sprintf("must be a number from %d to %d, not %q", low, high, shorten(value))
		}
	case huma.TypeBoolean:
		if value != "true" && value != "false" {
			return fmt.Sprintf("must be true or false, not %q", shorten(value))
		}
	default:
		return cmp.Or(textFault(value, len(value)), misfit(p.schema, value))
	}
	return ""
}

// text returns a parameter of the query.
func (x *request) text(name string) string {
	value, declared := x.query[name]
	if !declared {
		panic("parameter " + name + " is not in the table of routes")
	}
	return value
}

// int returns a parameter that is a number; the table gives it a default.
func (x *request) int(name string) int {
	n, err := strconv.Atoi(x.text(name))
	if err != nil {
		panic("the table of routes has no number parameter " + name)
	}
	return n
}

// uuid returns a parameter that is a UUID, nil when it is not given.
func (x *request) uuid(name string) *tasker.ID {
	text := x.text(name)
	if text == "" {
		return nil
	}
	id, err := parseID(text)
	if err != nil {
		panic("the table of routes has no UUID parameter " + name)
	}
	return &id
}

// bool returns a parameter that is true, false or not given.
func (x *request) bool(name string) *bool {
	text := x.text(name)
	if text == "" {
		return nil
	}
	is := text == "true"
	return &is
}
