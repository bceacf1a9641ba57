package ctl

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/query"
)

// addQueryFlags adds a flag for each parameter of the struct to which q points, except for those
// that the caller adds itself. limit is the default of --limit.
func addQueryFlags(c *cobra.Command, q any, limit int, except ...string) {
	for _, p := range query.Params(reflect.TypeOf(q).Elem()) {
		if slices.Contains(except, p.Name) {
			continue
		}
		if at, ok := reflect.TypeAssert[*int](p.Field(q).Addr()); ok && p.Name == "limit" {
			addLimitFlag(c, at, limit)
			continue
		}
		addQueryFlag(c, p, p.Field(q).Addr())
	}
}

// addQueryFlag adds the flag of a parameter. It is named like the parameter, unless its declaration
// contains another name. Its help is the description of the parameter.
func addQueryFlag(c *cobra.Command, p query.Param, field reflect.Value) {
	name, shorthand, _ := strings.Cut(cmp.Or(p.Flag, strings.ReplaceAll(p.Name, "_", "-")), ",")
	usage := strings.TrimSuffix(strings.ToLower(p.Doc[:1])+p.Doc[1:], ".")
	f := c.Flags()
	switch at := field.Interface().(type) {
	case *bool:
		f.BoolVarP(at, name, shorthand, false, usage)
	case **bool:
		cli.Optional(c, at, name, usage+" (true or false)")
	case *string:
		if p.Values == nil {
			f.StringVarP(at, name, shorthand, "", usage)
			return
		}
		f.VarP(cli.Choice(at, p.Values), name, shorthand, usage+": "+cli.Join(p.Values))
	case *[]string:
		f.StringArrayVarP(at, name, shorthand, nil, strings.TrimSuffix(usage, "; repeatable")+"; repeatable")
	case *int:
		f.VarP(cli.Number(at, p.Minimum, p.Maximum), name, shorthand, usage)
	case *int64:
		f.VarP(cli.Number(at, int64(p.Minimum), int64(p.Maximum)), name, shorthand, usage)
	case *time.Duration:
		f.VarP(cli.Minutes(at, 0), name, shorthand, usage+" in whole minutes")
	case *time.Time:
		f.VarP(cli.Time(at), name, shorthand, usage+", such as 2026-01-31T07:30:00Z")
	case **time.Time:
		f.VarP(cli.Time(at), name, shorthand, usage+", such as 2026-01-31T07:30:00Z")
	case *tasker.ID, **tasker.ID:
		f.VarP(idValue{field.Elem()}, name, shorthand, usage)
	case *[]tasker.AttributeFilter:
		f.VarP((*attributeValue)(at), name, shorthand, usage+"; repeatable")
	default: // a type of strings with a fixed set of values
		text := field.Convert(reflect.TypeFor[*string]()).Interface().(*string)
		f.VarP(cli.Choice(text, p.Values), name, shorthand, usage+": "+cli.Join(p.Values))
	}
}

// idValue is the value of a flag with an id.
type idValue struct{ field reflect.Value } // a tasker.ID or *tasker.ID

// String returns the id, or "" if the flag is not set.
func (v idValue) String() string {
	if !v.field.IsValid() || v.field.IsZero() {
		return ""
	}
	return fmt.Sprint(v.field.Interface())
}

// Type returns the type for the help.
func (idValue) Type() string { return "uuid" }

// Set parses an id.
func (v idValue) Set(text string) error {
	id, err := parseID("", text)
	if err != nil {
		return cli.ValueError("a UUID such as 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f")
	}
	if v.field.Kind() == reflect.Pointer {
		v.field.Set(reflect.ValueOf(&id))
	} else {
		v.field.Set(reflect.ValueOf(id))
	}
	return nil
}

// attributeValue is the value of a repeatable flag with conditions on search attributes.
type attributeValue []tasker.AttributeFilter

// String returns the conditions.
func (v *attributeValue) String() string { return fmt.Sprint([]tasker.AttributeFilter(*v)) }

// Type returns the type for the help.
func (*attributeValue) Type() string { return "name:value" }

// Set adds a condition.
func (v *attributeValue) Set(text string) error {
	a, err := tasker.ParseAttributeFilter(text)
	if err != nil {
		return cli.ValueError("NAME:VALUE, such as customer:4711 or risk:>0.5")
	}
	*v = append(*v, a)
	return nil
}
