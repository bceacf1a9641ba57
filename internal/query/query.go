// Package query converts between structs and the query parameters of the API. The server, the
// client and the command line use the same structs, so a parameter is declared once:
//
//	type HoldFilter struct {
//		Open  bool `query:"open" doc:"Only open holds."`
//		Limit int  `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"Maximum number of elements."`
//	}
//
// The tag query contains the name of the parameter. Fields without it are not parameters. The
// tags doc, minimum, maximum, default and maxLength have the same meaning as in the OpenAPI
// document. maxItems is required for slices, whose parameter may be repeated. An embedded struct
// adds its parameters; the tag without lists those that it does not add. The values of a field whose
// type has a fixed set of them are declared in choices.go; the tag choices names such a set for a
// string.
//
// A duration is a number in the unit at the end of the parameter's name: ms, seconds or minutes.
package query

import (
	"encoding"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tasker.example/tasker"
)

// Kind is the type of a parameter's value.
type Kind int

// Kinds of parameters.
const (
	Text Kind = iota
	Bool
	Int
	Time
	ID
)

// Param describes a query parameter.
type Param struct {
	Name      string
	Doc       string
	Kind      Kind
	Values    []string // the only valid values; nil means any
	MaxLength int      // of a text, in characters
	MaxItems  int      // how often it may be repeated; 0 means once
	Minimum   int      // of an integer
	Maximum   int      // of an integer
	Default   string   // "" means none
	Flag      string   // name of the command-line flag and its shorthand, such as "status,s"

	index []int // of the field
}

// Field returns the field of the parameter in the struct to which v points.
func (p Param) Field(v any) reflect.Value { return reflect.ValueOf(v).Elem().FieldByIndex(p.index) }

var described sync.Map // of [reflect.Type] to []Param

// Params returns the parameters that a struct type declares, in the order of its fields. It panics
// if a declaration is invalid.
func Params(t reflect.Type) []Param {
	if list, ok := described.Load(t); ok {
		return list.([]Param)
	}
	var list []Param
	for f := range t.Fields() {
		if f.Anonymous {
			list = append(list, embedded(f)...)
		} else if name, declared := f.Tag.Lookup("query"); declared {
			list = append(list, describe(f, name))
		}
	}
	described.Store(t, list)
	return list
}

// embedded returns the parameters of an embedded struct.
func embedded(f reflect.StructField) []Param {
	var list []Param
	without := strings.Split(f.Tag.Get("without"), ",")
	for _, p := range Params(f.Type) {
		if slices.Contains(without, p.Name) {
			continue
		}
		p.index = append([]int{f.Index[0]}, p.index...)
		list = append(list, p)
	}
	return list
}

func describe(f reflect.StructField, name string) Param {
	p := Param{Name: name, Doc: f.Tag.Get("doc"), Default: f.Tag.Get("default"), Flag: f.Tag.Get("flag"), index: f.Index}
	number := func(tag string) int {
		text, ok := f.Tag.Lookup(tag)
		if !ok {
			return 0
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			panic(fmt.Sprintf("parameter %s: invalid tag %s: %v", name, tag, err))
		}
		return n
	}
	p.MaxLength, p.MaxItems = number("maxLength"), number("maxItems")
	p.Minimum, p.Maximum = number("minimum"), number("maximum")
	t := f.Type
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	p.Values = choices[t]
	if set := f.Tag.Get("choices"); set != "" {
		p.Values = sets[set]()
	}
	switch {
	case t == reflect.TypeFor[tasker.ID]():
		p.Kind = ID
	case t == reflect.TypeFor[time.Time]():
		p.Kind = Time
	case t == attribute, isText(t):
	case t.Kind() == reflect.Bool:
		p.Kind = Bool
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		p.Kind = Int
		if p.Default == "" {
			p.Default = "0"
		}
	case t.Kind() != reflect.String:
		panic(fmt.Sprintf("parameter %s: the type %s is not supported", name, t))
	}
	if f.Type.Kind() == reflect.Slice && p.MaxItems == 0 || p.Kind == Int && p.Maximum == 0 || p.Kind == Text && p.Values == nil && p.MaxLength == 0 {
		panic(fmt.Sprintf("parameter %s has no limit", name))
	}
	return p
}

// attribute is the only type of a parameter that is neither a basic type nor implements
// encoding.TextUnmarshaler: its JSON is an object.
var attribute = reflect.TypeFor[tasker.AttributeFilter]()

func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// Encode returns the parameters of a struct. Zero values are omitted, so that the server uses its
// defaults.
func Encode(v any) url.Values {
	out := url.Values{}
	s := reflect.ValueOf(v)
	for _, p := range Params(s.Type()) {
		f := s.FieldByIndex(p.index)
		if f.IsZero() {
			continue
		}
		if f.Kind() != reflect.Slice {
			out.Set(p.Name, p.format(f))
			continue
		}
		for i := range f.Len() {
			out.Add(p.Name, p.format(f.Index(i)))
		}
	}
	return out
}

func (p Param) format(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return strconv.FormatInt(int64(x/p.unit()), 10)
	case time.Time:
		return x.UTC().Format(time.RFC3339Nano)
	case fmt.Stringer:
		return x.String()
	default:
		return fmt.Sprint(x)
	}
}

// unit returns the unit of a duration parameter. It panics if the name has none.
func (p Param) unit() time.Duration {
	for suffix, unit := range map[string]time.Duration{"_ms": time.Millisecond, "_seconds": time.Second, "minutes": time.Minute} {
		if strings.HasSuffix(p.Name, suffix) {
			return unit
		}
	}
	panic("parameter " + p.Name + " has no unit")
}

// Decode stores parameters in the struct to which v points. The values must be valid; defaults are
// not added. Errors are Invalid: a text that the type of its field rejects.
func Decode(values url.Values, v any) error {
	s := reflect.ValueOf(v).Elem()
	for _, p := range Params(s.Type()) {
		f := s.FieldByIndex(p.index)
		for _, text := range values[p.Name] {
			if text == "" {
				continue
			}
			one := f
			if f.Kind() == reflect.Slice {
				f.Grow(1)
				f.SetLen(f.Len() + 1)
				one = f.Index(f.Len() - 1)
			}
			if err := p.parse(text, one); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p Param) parse(text string, into reflect.Value) error {
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	if into.Type() == attribute {
		a, err := tasker.ParseAttributeFilter(text)
		into.Set(reflect.ValueOf(a))
		return err
	}
	invalid := func(err error) error { return tasker.Errorf(tasker.Invalid, "invalid %s %q: %w", p.Name, text, err) }
	if x, ok := reflect.TypeAssert[encoding.TextUnmarshaler](into.Addr()); ok {
		if err := x.UnmarshalText([]byte(text)); err != nil {
			return tasker.Errorf(tasker.Invalid, "%w", err)
		}
		return nil
	}
	switch p.Kind {
	case Bool:
		yes, err := strconv.ParseBool(text)
		if err != nil {
			return invalid(err)
		}
		into.SetBool(yes)
	case Int:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return invalid(err)
		}
		if into.Type() == reflect.TypeFor[time.Duration]() {
			n *= int64(p.unit())
		}
		into.SetInt(n)
	default:
		into.SetString(text)
	}
	return nil
}
