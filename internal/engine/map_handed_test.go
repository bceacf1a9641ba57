package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

func TestItemsReceiveTheContextWithoutTheirList(t *testing.T) {
	h := newHarness(t)
	for _, tt := range []struct{ name, over, context, want, omitted string }{
		{"key", "context.list", `{"list": [1, 2], "of": "x"}`, `{"of": "x"}`, "/list"},
		{"nothing-else", "context.list", `{"list": [1, 2]}`, `{}`, "/list"},
		{"inside", `context.?order["a/b~c"].orValue([])`, `{"order": {"a/b~c": [1, 2], "n": 12345678901234567890.10}}`, `{"order": {"n": 12345678901234567890.10}}`, "/order/a~1b~0c"},
		{"part", "context.list.filter(e, e in context.wanted)", `{"list": [1, 2, 3], "wanted": [1, 2]}`, `{"wanted": [1, 2]}`, "/list"},
		{"several", "has(context.x) ? context.x : context.a.map(e, {'n': e}) + context.b", `{"a": [1], "b": [2], "c": 3}`, `{"c": 3}`, "/a /b"},
		{"made", "[1, 2]", `{"list": [1, 2]}`, `{"list": [1, 2]}`, ""},
		{"in-results", "results.split", `{"list": [1, 2]}`, `{"list": [1, 2]}`, ""},
	} {
		h.Template(tt.name, enginetest.Step("split"), mapOver(tt.over, enginetest.Step("each", "split")))
		task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: tt.name, Context: json.RawMessage(tt.context)})
		split := h.ClaimOne("split")
		check(t, string(split.Context) != "" && len(split.ContextOmitted) == 0,
			"%s: a step was handed %s without %v", tt.name, split.Context, split.ContextOmitted)
		h.Accepted(success(split, `[1, 2]`))
		h.Tick()
		items := h.claimItems()
		require(t, len(items) == 2, "%s: %d items", tt.name, len(items))
		for _, a := range items {
			if string(a.Context) != tt.want || strings.Join(a.ContextOmitted, " ") != tt.omitted {
				t.Errorf("%s: an item was handed %s without %v, want %s without %s", tt.name, a.Context, a.ContextOmitted, tt.want, tt.omitted)
			}
			check(t, string(a.DependencyResults["split"]) == `[1, 2]` && len(a.DependencyRefs) == 0,
				"%s: the result came as %s, %v", tt.name, a.DependencyResults["split"], a.DependencyRefs)
			h.Accepted(success(a, `1`))
		}
		whole, err := h.Engine.TaskContext(t.Context(), task)
		h.Must(err)
		check(t, string(whole) == string(split.Context), "%s: the context is %s", tt.name, whole)
		h.Tick()
		h.WantState(task, tasker.TaskComplete)
	}
	h.WantCode(errOf(h.Engine.TaskContext(t.Context(), tasker.NewID())), tasker.NotFound)
}

func TestItemsReceiveLongResultsByReference(t *testing.T) {
	h := newHarness(t)
	h.Template("refunds", enginetest.Step("split"), enginetest.Step("rates"), mapOver("results.split.lines", enginetest.Step("refund", "split", "rates")))
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "refunds", Context: json.RawMessage(`{"of": "x"}`)})
	for _, a := range h.Claim() {
		h.Accepted(success(a, map[string]string{"split": lines(400), "rates": `{"eur": 1}`}[a.Name]))
	}
	h.Tick()
	handed := func(a tasker.Assignment) {
		t.Helper()
		ref, ok := a.DependencyRefs["split"]
		_, inline := a.DependencyResults["split"]
		if !ok || inline || ref.StepUUID != h.Step(task, "split").UUID || ref.Bytes < 4096 || string(a.DependencyResults["rates"]) != `{"eur": 1}` || string(a.Context) != `{"of": "x"}` {
			t.Errorf("an item was handed %s, %v and %v", a.Context, a.DependencyResults, a.DependencyRefs)
		}
		doc, err := h.Engine.StepResult(t.Context(), task, ref.StepUUID)
		h.Must(err)
		check(t, strings.Contains(string(doc), `{"line": 399}`), "the reference leads to %s", doc)
	}
	const size = `SELECT DISTINCT r.inputs_bytes FROM tasker.ready_steps r WHERE r.task_uuid = $1 AND r.step_uuid = $2`
	item, err := h.DB.StepNamed(t.Context(), task, "refund[0]")
	h.Must(err)
	bytes := h.Count(size, task, item)
	check(t, bytes > 0 && bytes <= 200, "an item counts as %d bytes", bytes)
	// Measured anew it counts as much.
	h.Exec(`UPDATE tasker.workflow_steps SET inputs_bytes = NULL WHERE step_uuid = $1`, item)
	h.Exec(`UPDATE tasker.ready_steps SET inputs_bytes = NULL WHERE step_uuid = $1`, item)
	if _, err := h.DB.MeasureInputs(t.Context(), []tasker.StepRef{{TaskUUID: task, StepUUID: item}}, 1e9); err != nil {
		t.Fatal(err)
	}
	equal(t, "bytes of the item measured again", h.Count(size, task, item), bytes)
	list := h.claimItems()
	require(t, len(list) == 400, "%d items", len(list))
	handed(list[0])
	handed(list[399])
	for _, a := range list {
		check(t, len(a.ContextOmitted) == 0, "an item is without %v of its context", a.ContextOmitted)
	}
}
