package query_test

import (
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/query"
)

type page struct {
	Limit  int `query:"limit" minimum:"1" maximum:"10" default:"5" doc:"Limit."`
	Offset int `query:"offset" maximum:"10" doc:"Offset."`
}

type filter struct {
	State      tasker.TaskState         `query:"status" flag:"state,s" doc:"State."`
	Name       string                   `query:"name" maxLength:"9" doc:"Name."`
	Topic      string                   `query:"topic" choices:"topics" doc:"Topic."`
	Tags       []string                 `query:"tag" maxLength:"9" maxItems:"2" doc:"Tag."`
	Attributes []tasker.AttributeFilter `query:"attribute" maxLength:"9" maxItems:"2" doc:"Attribute."`
	Open       bool                     `query:"open" doc:"Open."`
	Recovered  *bool                    `query:"recovered" doc:"Recovered."`
	Age        time.Duration            `query:"min_age_minutes" maximum:"100" doc:"Age."`
	Since      time.Time                `query:"since" doc:"Since."`
	Until      *time.Time               `query:"until" doc:"Until."`
	Task       tasker.ID                `query:"task" doc:"Task."`
	Case       *tasker.ID               `query:"case" doc:"Case."`
	Before     int64                    `query:"before" maximum:"100" doc:"Before."`
	page       `without:"offset"`
	Hidden     string
}

func TestEncodeAndDecode(t *testing.T) {
	t.Parallel()
	id, no, at := tasker.NewID(), false, time.Date(2026, 1, 31, 12, 0, 0, 500, time.UTC)
	f := filter{
		State: tasker.TaskError, Name: "a&b", Topic: "dlq.entry.created", Tags: []string{"x", "y"},
		Attributes: []tasker.AttributeFilter{{Name: "risk", Value: ">0.5"}}, Open: true, Recovered: &no, Age: 90 * time.Minute,
		Since: at, Until: &at, Task: id, Case: &id, Before: 7,
	}
	values := query.Encode(f)
	for name, want := range map[string]string{
		"status": "error", "name": "a&b", "tag": "x y", "attribute": "risk:>0.5", "open": "true", "recovered": "false", "min_age_minutes": "90",
		"since": "2026-01-31T12:00:00.0000005Z", "task": id.String(), "case": id.String(), "before": "7", "limit": "",
	} {
		if got := strings.Join(values[name], " "); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	var back filter
	if err := query.Decode(values, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, f) {
		t.Errorf("decoded %+v, want %+v", back, f)
	}
	if values := query.Encode(filter{}); len(values) > 0 {
		t.Errorf("zero values give %v", values)
	}
	if err := query.Decode(url.Values{"attribute": {"risk"}}, &back); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("malformed attribute: %v, want Invalid", err)
	}
}

func TestParams(t *testing.T) {
	t.Parallel()
	var names []string
	for _, p := range query.Params(reflect.TypeFor[filter]()) {
		names = append(names, p.Name)
		switch p.Name {
		case "status":
			if len(p.Values) != len(tasker.TaskStates()) || p.Flag != "state,s" {
				t.Errorf("status: %+v", p)
			}
		case "topic":
			if len(p.Values) != len(tasker.Topics()) {
				t.Errorf("topic: %+v", p)
			}
		case "limit":
			if p.Kind != query.Int || p.Minimum != 1 || p.Maximum != 10 || p.Default != "5" {
				t.Errorf("limit: %+v", p)
			}
		}
	}
	if got := strings.Join(names, " "); got != "status name topic tag attribute open recovered min_age_minutes since until task case before limit" {
		t.Error(got)
	}
}

func TestDeclarationsAreChecked(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]any{
		"has no limit": struct {
			Name string `query:"name" doc:"Name."`
		}{},
		"is not supported": struct {
			Ratio float64 `query:"ratio" maximum:"1" doc:"Ratio."`
		}{},
		"invalid tag maximum": struct {
			Limit int `query:"limit" maximum:"many" doc:"Limit."`
		}{},
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, name) {
					t.Errorf("the panic is %q, want one with %q", text, name)
				}
			}()
			query.Params(reflect.TypeOf(v))
		}()
	}
}
