package engine_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// Items are handed what they are for, and not the list with it.
func TestItemsAreNotHandedTheirList(t *testing.T) {
	t.Parallel()
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
		split := h.claimOne("split")
		if string(split.Context) == "" || len(split.ContextOmitted) != 0 {
			t.Errorf("%s: a step was handed %s without %v", tt.name, split.Context, split.ContextOmitted)
		}
		h.accepted(success(split, `[1, 2]`))
		h.tick()
		items := h.claimItems()
		if len(items) != 2 {
			t.Fatalf("%s: %d items", tt.name, len(items))
		}
		for _, a := range items {
			if string(a.Context) != tt.want || strings.Join(a.ContextOmitted, " ") != tt.omitted {
				t.Errorf("%s: an item was handed %s without %v, want %s without %s", tt.name, a.Context, a.ContextOmitted, tt.want, tt.omitted)
			}
			if string(a.DependencyResults["split"]) != `[1, 2]` || len(a.DependencyRefs) != 0 {
				t.Errorf("%s: the result came as %s, %v", tt.name, a.DependencyResults["split"], a.DependencyRefs)
			}
			h.accepted(success(a, `1`))
		}
		whole, err := h.Engine.TaskContext(t.Context(), task)
		h.Must(err)
		if string(whole) != string(split.Context) {
			t.Errorf("%s: the context is %s", tt.name, whole)
		}
		h.tick()
		h.wantState(task, tasker.TaskComplete)
	}
	_, err := h.Engine.TaskContext(t.Context(), tasker.NewID())
	h.WantCode(err, tasker.NotFound)
}

// A result with a long list is handed out by reference, and does not count among what is handed out.
func TestItemsAreHandedALongResultByReference(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("refunds", enginetest.Step("split"), enginetest.Step("rates"), mapOver("results.split.lines", enginetest.Step("refund", "split", "rates")))
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "refunds", Context: json.RawMessage(`{"of": "x"}`)})
	for _, a := range h.claim() {
		h.accepted(success(a, map[string]string{"split": lines(400), "rates": `{"eur": 1}`}[a.Name]))
	}
	h.tick()
	handed := func(a tasker.Assignment) {
		t.Helper()
		ref, ok := a.DependencyRefs["split"]
		_, inline := a.DependencyResults["split"]
		if !ok || inline || ref.StepUUID != h.step(task, "split").UUID || ref.Bytes < 4096 || string(a.DependencyResults["rates"]) != `{"eur": 1}` || string(a.Context) != `{"of": "x"}` {
			t.Errorf("an item was handed %s, %v and %v", a.Context, a.DependencyResults, a.DependencyRefs)
		}
		doc, err := h.Engine.StepResult(t.Context(), task, ref.StepUUID)
		h.Must(err)
		if !strings.Contains(string(doc), `{"line": 399}`) {
			t.Errorf("the reference leads to %s", doc)
		}
	}
	const size = `SELECT DISTINCT r.inputs_bytes FROM tasker.ready_steps r WHERE r.task_uuid = $1 AND r.step_uuid = $2`
	item, err := h.DB.StepNamed(t.Context(), task, "refund[0]")
	h.Must(err)
	bytes := h.Count(size, task, item)
	if bytes <= 0 || bytes > 200 {
		t.Errorf("an item counts as %d bytes", bytes)
	}
	// Measured anew it counts as much.
	h.Exec(`UPDATE tasker.workflow_steps SET inputs_bytes = NULL WHERE step_uuid = $1`, item)
	h.Exec(`UPDATE tasker.ready_steps SET inputs_bytes = NULL WHERE step_uuid = $1`, item)
	if _, err := h.DB.MeasureInputs(t.Context(), []tasker.StepRef{{TaskUUID: task, StepUUID: item}}, 1e9); err != nil {
		t.Fatal(err)
	}
	if again := h.Count(size, task, item); again != bytes {
		t.Errorf("measured anew an item counts as %d bytes, and as %d before", again, bytes)
	}
	list := h.claimItems()
	if len(list) != 400 {
		t.Fatalf("%d items", len(list))
	}
	handed(list[0])
	handed(list[399])
	if i := slices.IndexFunc(list, func(a tasker.Assignment) bool { return len(a.ContextOmitted) > 0 }); i >= 0 {
		t.Errorf("an item is without %v of its context", list[i].ContextOmitted)
	}
}
