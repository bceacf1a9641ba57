package operation_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/enginetest"
)

// Investigations and operations are selected by what their tasks are found by.
func TestWhatTasksAreFoundBySelects(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: h.Space, Name: "sale", Version: "1.0.0", Steps: []tasker.StepTemplate{enginetest.Once(enginetest.Step("charge"))},
		Search: map[string]tasker.SearchAttribute{
			"customer": {Type: tasker.AttributeText, From: "context.customer"}, "risk": {Type: tasker.AttributeNumber, From: "context.risk"},
		},
	}, "x")
	h.Must(err)
	var tasks []tasker.ID
	for i := range 4 {
		r := tasker.NewTask{
			Namespace: h.Space, Name: "sale", Tags: []string{"all", fmt.Sprintf("odd-%d", i%2)},
			Context: json.RawMessage(fmt.Sprintf(`{"customer": "c-%d", "risk": 0.%d}`, i%2, i+1)),
		}
		if i == 3 {
			r.CorrelationID = "request 3"
		}
		tasks = append(tasks, h.CreateWith(r))
	}
	h.work(4, fails("no"))
	attributes := func(texts ...string) (list []tasker.AttributeFilter) {
		list, err := tasker.ParseAttributeFilters(texts)
		h.Must(err)
		return list
	}
	for name, tt := range map[string]struct {
		filter tasker.InvestigationFilter
		want   []int
	}{
		"a tag":                        {tasker.InvestigationFilter{Tags: []string{"all"}}, []int{0, 1, 2, 3}},
		"two tags":                     {tasker.InvestigationFilter{Tags: []string{"all", "odd-1"}}, []int{1, 3}},
		"a tag that none has":          {tasker.InvestigationFilter{Tags: []string{"all", "none"}}, nil},
		"a correlation id":             {tasker.InvestigationFilter{CorrelationID: "request 3"}, []int{3}},
		"that of a task without":       {tasker.InvestigationFilter{CorrelationID: tasks[1].String()}, []int{1}},
		"an attribute":                 {tasker.InvestigationFilter{Attributes: attributes("customer:c-0")}, []int{0, 2}},
		"a range, another and a tag":   {tasker.InvestigationFilter{Attributes: attributes("risk:>0.1", "customer:c-0"), Tags: []string{"odd-0"}}, []int{2}},
		"an attribute and a namespace": {tasker.InvestigationFilter{Attributes: attributes("risk:<=0.2"), Namespace: h.Space}, []int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			want := map[tasker.ID]bool{}
			for _, i := range tt.want {
				want[tasks[i]] = true
			}
			f := tt.filter
			f.Limit = 50
			list, _, err := h.DB.InvestigationQueue(t.Context(), f)
			h.Must(err)
			for _, e := range list {
				if !want[e.TaskUUID] {
					t.Errorf("the queue has task %s", e.TaskUUID)
				}
			}
			if n, err := h.DB.CountArrivals(t.Context(), tasker.OperationSelection{Filter: tt.filter}, time.Time{}, 50); err != nil || n != len(want) {
				t.Errorf("%d are counted, %v", n, err)
			}
			if len(list) != len(want) {
				t.Errorf("the queue has %d, want %d", len(list), len(want))
			}
			p := plan()
			p.Selection.Filter = tt.filter
			o, _, err := h.ops.Plan(t.Context(), p)
			if len(want) == 0 {
				h.WantCode(err, tasker.NotFound)
				return
			}
			h.Must(err)
			if got := h.now(o); got.Items != len(want) || len(got.Selection.Filter.Tags) != len(f.Tags) || len(got.Selection.Filter.Attributes) != len(f.Attributes) {
				t.Errorf("the operation has %d items and selects by %+v", got.Items, got.Selection.Filter)
			}
			_, err = h.ops.Abort(t.Context(), o.UUID, "ann")
			h.Must(err)
		})
	}
	// Who may not read payloads selects nothing by parts of them.
	without := access.WithPayloadScope(t.Context(), access.NamespaceScope("other"))
	if list, _, err := h.DB.InvestigationQueue(without, tasker.InvestigationFilter{Attributes: attributes("customer:c-0"), Limit: 50}); err != nil || len(list) != 0 {
		t.Errorf("the queue has %d, %v", len(list), err)
	}
	_, _, err = h.DB.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Attributes: attributes("client:c-0"), Limit: 50})
	h.WantCode(err, tasker.Invalid, `unknown attribute "client": must be one of customer, risk`)
	p := plan()
	p.Selection.Filter.Attributes = attributes("risk:high")
	_, _, err = h.ops.Plan(t.Context(), p)
	h.WantCode(err, tasker.Invalid, "attribute risk must be a number")
	p = plan()
	p.Selection.Filter.Tags = make([]string, 11)
	_, _, err = h.ops.Plan(t.Context(), p)
	h.WantCode(err, tasker.Invalid, "select.tags: has 11 tags; the limit is 10")
	_, _, err = h.DB.Cases(t.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Tags: []string{"all"}, Limit: 5}})
	h.WantCode(err, tasker.Invalid, "cases cannot be selected by")
}
