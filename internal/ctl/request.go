package ctl

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/query"
)

// maker creates a command of a program.
type maker func(*program) *cobra.Command

// group returns the command of a noun, which contains the commands of its verbs.
func group(h help, below ...maker) maker {
	return func(p *program) *cobra.Command {
		c := cli.NewGroup(&cobra.Command{Use: h.use, Short: h.short, Long: h.long, Example: h.example})
		for _, create := range below {
			c.AddCommand(create(p))
		}
		return c
	}
}

// plain returns a command that sends one request and prints the answer, with asText unless the
// output is JSON. The arguments are the parameters of the path. The query and the body get a flag for
// each of their fields that declares one; complete checks and completes the body.
func plain[Q, B, A any](
	e endpoint.Of[Q, B, A], h help, asText func(*program, A), complete ...func(*program, *B, arguments) error,
) maker {
	return func(p *program) *cobra.Command {
		r := newRequest(e)
		r.prepare = func(_ context.Context, a arguments) error {
			for _, f := range complete {
				if err := f(p, &r.body, a); err != nil {
					return err
				}
			}
			return nil
		}
		return r.command(p, h, func(answer A) { asText(p, answer) })
	}
}

// list returns a command that prints a list as a table, like [printList]. The answer is a list, or it
// contains the list and optionally the cursor of the next page.
func list[Q, A, T any](e endpoint.Of[Q, endpoint.None, A], h help, empty, header string, row func(T) []any) maker {
	return plain(e, h, func(p *program, answer A) {
		items, ok := any(answer).([]T)
		v := reflect.ValueOf(answer)
		if ok {
			printList(p, items, empty, header, row)
			p.hintMorePages(len(items))
			return
		}
		for _, field := range v.Fields() {
			if items, ok = reflect.TypeAssert[[]T](field); ok {
				printList(p, items, empty, header, row)
			}
		}
		page := v.FieldByName("Pagination")
		if !page.IsValid() {
			return
		}
		if page, ok := reflect.TypeAssert[apiv1.Pagination](page); ok {
			p.printNextPage(page)
		}
		for _, flag := range []string{"before", "after"} {
			if next := page.FieldByName("Next" + strings.ToTitle(flag[:1]) + flag[1:]); next.IsValid() && !next.IsNil() {
				printNextPageFlag(p, flag, new(next.Elem().Interface()))
			}
		}
	})
}

// request is a request that a command sends. Its flags fill in the query and the body.
type request[Q, B, A any] struct {
	endpoint endpoint.Of[Q, B, A]
	query    Q
	body     B
	prepare  func(context.Context, arguments) error // checks and completes the request; optional
}

func newRequest[Q, B, A any](e endpoint.Of[Q, B, A]) *request[Q, B, A] {
	return &request[Q, B, A]{endpoint: e}
}

// command returns a command that sends the request and prints the answer.
func (r *request[Q, B, A]) command(p *program, h help, asText func(A)) *cobra.Command {
	c := newRequestCommand(p, h, r.send, asText)
	p.addQueryFlags(c, &r.query, h.limit, h.without...)
	p.addBodyFlags(c, &r.body)
	return c
}

func (r *request[Q, B, A]) send(ctx context.Context, api *client.Client, a arguments) (answer A, err error) {
	if r.prepare != nil {
		if err := r.prepare(ctx, a); err != nil {
			return answer, err
		}
	}
	path := make([]any, strings.Count(r.endpoint.Path, "{"))
	for i := range path {
		path[i] = a.parameter(i)
	}
	return client.Call(ctx, api, r.endpoint, r.query, r.body, path...)
}

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
		f.VarP(newIDValue(field.Elem()), name, shorthand, usage)
	case *[]tasker.AttributeFilter:
		f.VarP(newAttributesValue(at), name, shorthand, usage+"; repeatable")
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
// The tag why makes the flag required. The help of the fields Reason, DryRun, By and Actor is always
// the same: the first three need no declaration, and Actor without one is set without a flag. The flag
// "-" means none.
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
		case f.Name == "DryRun":
			addDryRunFlags(c, at.(*bool), v.FieldByName("Reason").Addr().Interface().(*string))
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

// newUnitValue returns the value of a flag for a duration that the API has as a number of a unit: an
// int, int64, float64 or a pointer. Integers of seconds have the bounds that the field declares.
func newUnitValue(f reflect.StructField, field reflect.Value, unit time.Duration) pflag.Value {
	bound := func(tag string) time.Duration {
		n, _ := strconv.Atoi(f.Tag.Get(tag))
		return time.Duration(n) * unit
	}
	d := new(time.Duration)
	v := cli.Span(d, bound("minimum"), bound("maximum"))
	if unit == time.Minute {
		v = cli.Minutes(d, bound("minimum"))
	} else if field.Kind() == reflect.Float64 {
		v = cli.Duration(d, 0)
	}
	return cli.NewValue(v.Type(), v.String, func(text string) error {
		if err := v.Set(text); err != nil {
			return err
		}
		into := field
		if field.Kind() == reflect.Pointer {
			field.Set(reflect.New(field.Type().Elem()))
			into = field.Elem()
		}
		number := reflect.ValueOf(float64(*d) / float64(unit))
		into.Set(number.Convert(into.Type()))
		return nil
	})
}

// newIDValue returns the value of a flag with an id. field is a tasker.ID or *tasker.ID.
func newIDValue(field reflect.Value) pflag.Value {
	text := func() string {
		if field.IsZero() {
			return ""
		}
		return fmt.Sprint(field.Interface())
	}
	return cli.NewValue("uuid", text, func(text string) error {
		id, err := parseID("", text)
		if err != nil {
			return cli.ValueError("a UUID such as 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f")
		}
		if field.Kind() == reflect.Pointer {
			field.Set(reflect.ValueOf(&id))
		} else {
			field.Set(reflect.ValueOf(id))
		}
		return nil
	})
}

// newAttributesValue returns the value of a repeatable flag with conditions on search attributes.
func newAttributesValue(list *[]tasker.AttributeFilter) pflag.Value {
	return cli.NewValue("name:value", func() string { return fmt.Sprint(*list) }, func(text string) error {
		a, err := tasker.ParseAttributeFilter(text)
		if err != nil {
			return cli.ValueError("NAME:VALUE, such as customer:4711 or risk:>0.5")
		}
		*list = append(*list, a)
		return nil
	})
}

// newWavesValue returns the value of a flag with the sizes of waves.
func newWavesValue(waves **[]int) pflag.Value {
	current := "1,10,100"
	*waves = &[]int{1, 10, 100}
	return cli.NewValue("string", func() string { return current }, func(text string) error {
		current, *waves = text, &[]int{}
		if text == "" || text == "all" {
			return nil
		}
		for part := range strings.SplitSeq(strings.TrimSuffix(text, ",rest"), ",") {
			n, err := strconv.Atoi(strings.TrimSpace(part))
			if err != nil || n < 1 || n > tasker.MaxOperationItems {
				return cli.ValueError(fmt.Sprintf("comma-separated numbers from 1 to %d, or all", tasker.MaxOperationItems))
			}
			**waves = append(**waves, n)
		}
		return nil
	})
}
