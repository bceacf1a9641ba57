package ctl

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/query"
)

// addQueryFlags adds a flag for each parameter of the struct to which q points, except for those
// that the caller adds itself. limit is the default of --limit.
func (p *program) addQueryFlags(c *cobra.Command, q any, limit int, except ...string) {
	for _, param := range query.Params(reflect.TypeOf(q).Elem()) {
		field := param.Field(q).Addr()
		number, _ := reflect.TypeAssert[*int](field)
		text, _ := reflect.TypeAssert[*string](field)
		switch {
		case slices.Contains(except, param.Name), param.Flag == "-":
		case param.Name == "limit":
			addLimitFlag(c, number, limit)
		case param.Name == "reason" && text != nil:
			addOptionalReasonFlag(c, text)
		case param.Name == "by" && text != nil, param.Name == "cancelled_by":
			p.addActorFlag(c, text, strings.ReplaceAll(param.Name, "_", "-"))
		default:
			addQueryFlag(c, param, field)
		}
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

// addBodyFlags adds a flag for each field of the struct to which body points that declares one, with
// its name, its shorthand and its help:
//
//	Owner string `json:"owner" flag:"owner,o" usage:"owner of the hold"`
//
// The tag why makes the flag required. The help of the fields Reason, By and Actor is always the
// same: the first two need no declaration, and Actor without one is set without a flag.
func (p *program) addBodyFlags(c *cobra.Command, body any) {
	v := reflect.ValueOf(body).Elem()
	for i := range v.NumField() {
		f, at := v.Type().Field(i), v.Field(i).Addr().Interface()
		name, shorthand, _ := strings.Cut(f.Tag.Get("flag"), ",")
		text, _ := at.(*string)
		switch {
		case f.Anonymous:
			p.addBodyFlags(c, at)
		case f.Tag.Get("usage") != "":
			addBodyFlag(c, f, v.Field(i), name, shorthand)
		case name == "-":
		case f.Name == "Reason" && strings.Contains(f.Tag.Get("json"), ",omitempty"):
			addOptionalReasonFlag(c, text)
		case f.Name == "Reason":
			addReasonFlag(c, text, shorthand)
		case f.Name == "By":
			p.addActorFlag(c, text, cmp.Or(name, "by"))
		case f.Name == "Actor" || f.Tag.Get("flag") != "":
			p.addActorFlag(c, text, name)
		}
		if why := f.Tag.Get("why"); why != "" {
			markRequired(c, name, why)
		}
	}
}

func addBodyFlag(c *cobra.Command, field reflect.StructField, v reflect.Value, name, shorthand string) {
	usage := field.Tag.Get("usage")
	f := c.Flags()
	if unit := unitOf(field); unit != 0 {
		f.VarP(newUnitValue(field, v, unit), name, shorthand, usage)
		return
	}
	switch at := v.Addr().Interface().(type) {
	case *string:
		f.StringVarP(at, name, shorthand, *at, usage)
	case *bool:
		f.BoolVarP(at, name, shorthand, false, usage)
	case **bool:
		cli.Optional(c, at, name, usage)
	case *int:
		f.IntVarP(at, name, shorthand, 0, usage)
	case *float64:
		f.Float64VarP(at, name, shorthand, 0, usage)
	case *[]string:
		f.StringArrayVarP(at, name, shorthand, nil, usage)
	case *time.Time:
		f.VarP(cli.Time(at), name, shorthand, usage)
	case **time.Time:
		if strings.Contains(usage, "+90m") {
			f.VarP(cli.TimeOrSpan(at), name, shorthand, usage)
		} else {
			f.VarP(cli.Time(at), name, shorthand, usage)
		}
	case **[]int:
		f.VarP(newWavesValue(at), name, shorthand, usage)
	default:
		panic("field " + field.Name + ": no flag for type " + field.Type.String())
	}
}

// unitValue is the value of a flag with a duration that the API has as a number of a unit.
type unitValue struct {
	pflag.Value

	d     *time.Duration
	unit  time.Duration
	field reflect.Value // int, int64, float64 or a pointer
}

// unitOf returns the unit of a field, from its name in JSON, or 0.
func unitOf(f reflect.StructField) time.Duration {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case strings.HasSuffix(name, "_seconds"):
		return time.Second
	case strings.HasSuffix(name, "_minutes"):
		return time.Minute
	default:
		return 0
	}
}

// newUnitValue returns the value of a flag for a duration. Numbers of seconds have the bounds that the
// field declares.
func newUnitValue(f reflect.StructField, field reflect.Value, unit time.Duration) unitValue {
	bound := func(tag string) time.Duration {
		n, _ := strconv.Atoi(f.Tag.Get(tag))
		return time.Duration(n) * unit
	}
	d := new(time.Duration)
	v := unitValue{d: d, unit: unit, field: field}
	switch {
	case unit == time.Minute:
		v.Value = cli.Minutes(d, bound("minimum"))
	case field.Kind() == reflect.Float64:
		v.Value = cli.Duration(d, 0)
	default:
		v.Value = cli.Span(d, bound("minimum"), bound("maximum"))
	}
	return v
}

// Set parses a duration.
func (v unitValue) Set(text string) error {
	if err := v.Value.Set(text); err != nil {
		return err
	}
	field := v.field
	if field.Kind() == reflect.Pointer {
		field.Set(reflect.New(field.Type().Elem()))
		field = field.Elem()
	}
	if field.Kind() == reflect.Float64 {
		field.SetFloat(float64(*v.d) / float64(v.unit))
	} else {
		field.SetInt(int64(*v.d / v.unit))
	}
	return nil
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
