package engine_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
)

func searched() tasker.Template {
	return tasker.Template{
		Namespace: enginetest.Namespace, Name: "searched", Version: "1.0.0", Steps: []tasker.StepTemplate{enginetest.Step("one")},
		Search: map[string]tasker.SearchAttribute{
			"customer": {Type: tasker.AttributeText, From: "context.customer.id"},
			"amount":   {Type: tasker.AttributeNumber, From: "context.amount * 2"},
			"due":      {Type: tasker.AttributeTime, From: "timestamp(context.due)"},
			"gift":     {Type: tasker.AttributeBool, From: "has(context.note)"},
		},
	}
}

// Tasks are found by what their template declares, and what cannot be evaluated is left out.
func TestTasksAreFoundByDeclaredAttributes(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	var said bytes.Buffer
	e := engine.New(h.DB, engine.Options{Log: slog.New(slog.NewTextHandler(&said, nil))})
	_, _, err := e.RegisterTemplate(t.Context(), searched(), "x")
	h.Must(err)
	create := func(doc string) tasker.ID {
		made, err := e.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "searched", Context: json.RawMessage(doc)}})
		h.Must(err)
		return made[0].TaskUUID
	}
	ann := create(`{"customer": {"id": "ann"}, "amount": 12.5, "due": "2026-02-01T10:00:00+01:00", "note": "x"}`)
	bob := create(`{"customer": {"id": "bob"}, "amount": 1000000, "due": "2026-03-01T00:00:00Z"}`)
	none := create(`{}`)
	odd := create(`{"customer": {"id": 7}, "amount": "many", "due": "soon"}`)
	long := create(`{"customer": {"id": "` + strings.Repeat("é", 129) + `"}, "amount": null, "due": null}`)
	null := create(`{"customer": {"id": null}, "amount": 1}`)
	for text, found := range map[string][]tasker.ID{
		"customer:ann": {ann}, "customer:bob": {bob}, "customer:7": nil, "customer:": nil, "customer:an": nil,
		"amount:25": {ann}, "amount:25.0": {ann}, "amount:>24.9": {bob, ann}, "amount:>=25": {bob, ann}, "amount:>25": {bob}, "amount:<25": {null}, "amount:<=25": {ann, null},
		"due:2026-02-01T09:00:00Z": {ann}, "due:>2026-02-01T09:00:00Z": {bob}, "due:<2027-01-01T00:00:00Z": {bob, ann},
		"gift:true": {ann}, "gift:false": {null, long, odd, none, bob},
		"gift:false&amount:>0": {null, bob}, "amount:>0&amount:<1000": {ann, null},
	} {
		var f tasker.TaskFilter
		for one := range strings.SplitSeq(text, "&") {
			a, err := tasker.ParseAttributeFilter(one)
			if (err != nil) != strings.HasSuffix(one, ":") {
				t.Errorf("%s: %v", one, err)
			}
			f.Attributes = append(f.Attributes, a)
		}
		if text == "customer:" {
			continue
		}
		f.Limit = 50
		list, _, err := h.DB.Tasks(t.Context(), f)
		h.Must(err)
		var ids []tasker.ID
		for _, task := range list {
			ids = append(ids, task.UUID)
		}
		if diff := cmp.Diff(found, ids); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	if n := strings.Count(said.String(), "is left out"); n != 3 || strings.Contains(said.String(), "many") {
		t.Errorf("it is logged %d times, want 3, without values:\n%s", n, said.String())
	}
	for text, wrong := range map[string]string{
		"client:x": "there are amount, customer, due, gift", "amount:x": "is a number", "amount:NaN": "is a number", "due:today": "is a time", "gift:yes": "is true or false",
	} {
		a, _ := tasker.ParseAttributeFilter(text)
		if _, _, err := h.DB.Tasks(t.Context(), tasker.TaskFilter{Attributes: []tasker.AttributeFilter{a}}); tasker.CodeOf(err) != tasker.Invalid || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, want %q", text, err, wrong)
		}
	}
	without := access.WithPayloads(t.Context(), access.Namespaces("other"))
	if list, _, err := h.DB.Tasks(without, tasker.TaskFilter{Attributes: []tasker.AttributeFilter{{Name: "customer", Value: "ann"}}, Limit: 50}); err != nil || len(list) != 0 {
		t.Errorf("who may not read payloads finds %d tasks by them, %v", len(list), err)
	}
}

// One name has one type within a namespace.
func TestAnAttributeHasOneType(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	register := func(change func(*tasker.Template)) error {
		other := searched()
		change(&other)
		_, _, err := h.Engine.RegisterTemplate(t.Context(), other, "x")
		return err
	}
	number := map[string]tasker.SearchAttribute{"customer": {Type: tasker.AttributeNumber, From: "context.n"}}
	h.Must(register(func(*tasker.Template) {}))
	h.Must(register(func(o *tasker.Template) { o.Version = "1.1.0" }))
	h.Must(register(func(o *tasker.Template) { o.Namespace, o.Search = "other", number }))
	err := register(func(o *tasker.Template) { o.Name, o.Search = "second", number })
	if tasker.CodeOf(err) != tasker.Conflict || !strings.Contains(err.Error(), "search.customer: is number here and text in template "+enginetest.Namespace+"/searched 1.1.0") {
		t.Errorf("another type: %v", err)
	}
	if _, err := h.DB.Template(t.Context(), enginetest.Namespace, "second", ""); tasker.CodeOf(err) != tasker.NotFound {
		t.Errorf("the refused template: %v", err)
	}
	// A version that nobody used may be replaced, and its name is free then.
	for _, version := range []string{"1.0.0", "1.1.0"} {
		h.Must(register(func(o *tasker.Template) { o.Version, o.Search = version, nil }))
	}
	h.Must(register(func(o *tasker.Template) { o.Name, o.Search = "second", number }))
	list, _, err := h.DB.Attributes(t.Context(), enginetest.Namespace, 100, 0)
	h.Must(err)
	for _, a := range list {
		if a.Name == "customer" && (a.Type != tasker.AttributeNumber || !cmp.Equal(a.Templates, []string{"second"})) {
			t.Errorf("it is %+v", a)
		}
	}
	if len(list) != 4 {
		t.Errorf("%d attributes", len(list))
	}
	_, _, err = h.DB.Tasks(t.Context(), tasker.TaskFilter{Attributes: []tasker.AttributeFilter{{Name: "due", Value: "2026-01-01T00:00:00Z"}}, Namespace: "other"})
	if tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("of another namespace: %v", err)
	}
}
