package apiv1_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// hidden are the fields of package tasker that the wire does not have, and why.
var hidden = map[string]string{
	"Event.Subject":                "of messages, which are listed with their incident",
	"StoredTemplate.UUID":          "namespace, name and version name the template",
	"StoredTemplate.Source":        "only with the whole template",
	"Template.InputSchema":         "only with the whole template",
	"Template.Lifecycle":           "only with the whole template",
	"StartRules.WithinSeconds":     "only with the whole template",
	"Unique.Key":                   "only with the whole template",
	"Unique.OnConflict":            "only with the whole template",
	"DebounceRules.Key":            "only with the whole template",
	"DebounceRules.WaitSeconds":    "only with the whole template",
	"DebounceRules.MaxWaitSeconds": "only with the whole template",
	"DuePolicy.AfterSeconds":       "only with the whole template",
	"DuePolicy.At":                 "only with the whole template",
	"DuePolicy.WarnBeforeSeconds":  "only with the whole template",
	"DuePolicy.Overdue":            "only with the whole template",
	"Template.Order":               "only with the whole template",
	"Template.Limits":              "only with the whole template, and GET /v1/limits has them",
	"Triage.Keys":                  "only with the whole template",
	"Template.Metadata":            "only with the whole template",
	"Template.Environments":        "only with the whole template",
	"Template.Search":              "only with the whole template, and GET /v1/attributes has it",
	"Assignment.Fence":             "the lease token contains it",
}

// A wire type has every field of the type that it spells: a field without its value
// changes the JSON, unless it is hidden for a reason.
func TestTheWireForgetsNoField(t *testing.T) {
	t.Parallel()
	check(t, apiv1.FromTemplate)
	check(t, func(v tasker.Dispatch) any { return apiv1.FromDispatch(&v) })
	check(t, apiv1.FromAssignment)
	check(t, func(v tasker.Event) any { return apiv1.FromEvent(v, nil) })
	check(t, apiv1.FromEmission)
}

func check[T, W any](t *testing.T, spell func(T) W) {
	t.Helper()
	var full T
	fill(reflect.ValueOf(&full).Elem())
	encode := func(v T) string {
		doc, err := json.Marshal(spell(v))
		if err != nil {
			t.Fatal(err)
		}
		return string(doc)
	}
	whole := encode(full)
	each(reflect.TypeFor[T](), func(name string, path []int) {
		less := full
		reflect.ValueOf(&less).Elem().FieldByIndex(path).SetZero()
		wantLists(t, name, reflect.ValueOf(spell(less)))
		switch shown := encode(less) != whole; {
		case name == "Event.Data" && reflect.TypeFor[T]() == reflect.TypeFor[tasker.Emission](): // a list would be too large with it
		case !shown && hidden[name] == "":
			t.Errorf("%T forgets %s: add it, or say in hidden why it is not there", spell(full), name)
		case shown && hidden[name] != "":
			t.Errorf("%T has %s: take it out of hidden", spell(full), name)
		}
	})
}

// wantLists fails the test when a list of a wire type would be null without the field, and the
// OpenAPI document does not allow it.
func wantLists(t *testing.T, without string, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			wantLists(t, without, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			wantLists(t, without, v.Index(i))
		}
	case reflect.Struct:
		for field, value := range v.Fields() {
			kind, tag := value.Kind(), field.Tag
			if (kind == reflect.Slice || kind == reflect.Map) && value.IsNil() && field.Type != reflect.TypeFor[json.RawMessage]() &&
				!strings.Contains(tag.Get("json"), "omit") && tag.Get("nullable") == "" {
				t.Errorf("%s.%s is null without %s: send an empty list, or allow null", v.Type(), field.Name, without)
			}
			if field.IsExported() {
				wantLists(t, without, value)
			}
		}
	default:
	}
}

// each calls f for the fields of a struct and of those that it embeds or contains.
func each(of reflect.Type, f func(name string, path []int)) {
	for field := range of.Fields() {
		if field.Type.Kind() != reflect.Struct || field.Type == reflect.TypeFor[time.Time]() || field.Type == reflect.TypeFor[tasker.Lifecycle]() {
			f(of.Name()+"."+field.Name, field.Index)
			continue
		}
		each(field.Type, func(name string, path []int) {
			f(name, append(append([]int(nil), field.Index...), path...))
		})
	}
}

// fill gives every field a value that is not zero.
func fill(v reflect.Value) {
	switch at := v.Addr().Interface().(type) {
	case *time.Time:
		*at = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
		return
	case *json.RawMessage:
		*at = json.RawMessage(`{"a":1}`)
		return
	case *tasker.ID:
		*at = tasker.ID{1}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(7)
	default:
		v.SetInt(7_000_000_000)
	}
}
