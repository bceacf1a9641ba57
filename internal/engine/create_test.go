package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

func TestBulkCreateIsAtomic(t *testing.T) {
	h := newSingle(t)
	good := tasker.NewTask{Namespace: enginetest.Namespace, Name: "single"}
	bad := tasker.NewTask{Namespace: enginetest.Namespace, Name: "nothing"}
	_, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{good, bad, good})
	h.WantCode(err, tasker.NotFound, "tasks[1]", "template shop/nothing not found")
	list, _, err := h.DB.Tasks(t.Context(), tasker.TaskFilter{Limit: 10})
	h.Must(err)
	equal(t, "tasks were made", len(list), 0)
	many := slices.Repeat([]tasker.NewTask{good}, 1000)
	created, err := h.Engine.CreateTasks(t.Context(), many)
	h.Must(err)
	equal(t, "created tasks", len(created), 1000)
	h.WantCode(errOf(h.Engine.CreateTasks(t.Context(), append(many, good))), tasker.Invalid, "1 to 1000")
}

func TestBulkCreateIsBoundedInSteps(t *testing.T) {
	h := newHarness(t)
	steps := make([]tasker.StepTemplate, 1000)
	for i := range steps {
		steps[i] = enginetest.Step(fmt.Sprint("s", i))
	}
	h.Template("wide", steps...)
	many := slices.Repeat([]tasker.NewTask{{Namespace: enginetest.Namespace, Name: "wide"}}, 51)
	h.WantCode(errOf(h.Engine.CreateTasks(t.Context(), many)), tasker.TooLarge, "tasks[50]", "50000 steps")
}

func TestInvalidTaskRequestsAreRejected(t *testing.T) {
	h := newHarness(t)
	h.RegisterTemplate(tasker.Template{
		Namespace: enginetest.Namespace, Name: "single", Version: "1.0.0", Steps: []tasker.StepTemplate{enginetest.Step("one")},
		InputSchema: json.RawMessage(`{"type": "object", "required": ["order"], "properties": {"order": {"type": "integer"}}}`),
	})
	ok := json.RawMessage(`{"order": 1}`)
	for _, tt := range []struct {
		name    string
		request tasker.NewTask
		code    tasker.Code
		says    string
	}{
		{"no name", tasker.NewTask{Namespace: enginetest.Namespace, Context: ok}, tasker.Invalid, "name: is missing"},
		{"no such version", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Version: "2.0.0", Context: ok}, tasker.NotFound, "single 2.0.0"},
		{"context is a list", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Context: json.RawMessage(`[]`)}, tasker.Invalid, "context: must be a JSON object"},
		{"context is not JSON", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Context: json.RawMessage(`{`)}, tasker.Invalid, "context: "},
		{"context is two documents", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Context: json.RawMessage(`{} {}`)}, tasker.Invalid, "unexpected text after the JSON value"},
		{"context has a NUL", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Context: json.RawMessage(`{"order": 1, "a": "\u0000"}`)}, tasker.Invalid, "NUL"},
		{"context lacks a key", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single"}, tasker.Invalid, "context"},
		{"context has a wrong type", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Context: json.RawMessage(`{"order": "x"}`)}, tasker.Invalid, "order"},
		{"context is too large", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Context: json.RawMessage(`{"a":"` + strings.Repeat("x", 2<<20) + `"}`)}, tasker.TooLarge, "limit"},
		{"a tag is empty", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Context: ok, Tags: []string{"a", ""}}, tasker.Invalid, "tags[1]"},
		{"priority is absurd", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Context: ok, Priority: 5000}, tasker.Invalid, "priority: must be from -1000 to 1000"},
		{"reason has a NUL", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Context: ok, Reason: "a\x00"}, tasker.Invalid, "reason: contains NUL"},
		{"start is absurd", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Context: ok, StartAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, tasker.Invalid, "start_at"},
		{"recreated from nothing", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Context: ok, RecreatedFrom: tasker.NewID()}, tasker.Invalid, "recreated_from"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.WantCode(errOf(h.Engine.CreateTasks(t.Context(), []tasker.NewTask{tt.request})), tt.code, tt.says)
		})
	}
	list, _, err := h.DB.Tasks(t.Context(), tasker.TaskFilter{Limit: 10})
	h.Must(err)
	equal(t, "tasks were made", len(list), 0)
}

func TestDependencyCycleOpensAnInvestigation(t *testing.T) {
	h := newHarness(t)
	h.Template("loop", enginetest.Step("a", "c"), enginetest.Step("b", "a"), enginetest.Step("c", "b"), enginetest.Step("d"))
	task := h.Create("loop")
	h.WantState(task, tasker.TaskError)
	e := h.Entry(task)
	check(t, e.Reason == tasker.DependencyCycleDetected && e.OriginalState == tasker.TaskInitializing,
		"entry %s from %s", e.Reason, e.OriginalState)
	h.WantHistory(task, "pending initializing error")
	list := h.Moves(task)
	r := list[len(list)-1].Reason
	check(t, strings.Contains(r, " -> "), "reason %q does not name the cycle", r)
	h.ClaimNone()
}

func TestUsedTemplateVersionIsImmutable(t *testing.T) {
	h := newSingle(t)
	h.Template("single", enginetest.Step("other")) // nobody has used it
	task := h.Create("single")
	h.ClaimOne("other")
	h.Step(task, "other")
	_, _, err := h.Engine.RegisterTemplate(t.Context(),
		tasker.Template{Namespace: enginetest.Namespace, Name: "single", Version: "1.0.0", Steps: []tasker.StepTemplate{enginetest.Step("third")}}, "")
	h.WantCode(err, tasker.Conflict, "as a new version")
	stored, created, err := h.Engine.RegisterTemplate(t.Context(),
		tasker.Template{Namespace: enginetest.Namespace, Name: "single", Version: "1.1.0", Steps: []tasker.StepTemplate{enginetest.Step("third")}}, "")
	h.Must(err)
	check(t, created && stored.Version == "1.1.0", "stored %s, created %v", stored.Version, created)
	h.Step(h.Create("single"), "third") // the newest
	h.Step(h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Version: "1.0.0"}), "other")
}

func TestReplacingATemplateConflictsWithItsFirstTask(t *testing.T) {
	h := newSingle(t)
	h.Template("other", enginetest.Step("one"))
	task := h.Create("other")
	tx, err := h.Admin().Begin(t.Context())
	h.Must(err)
	_, err = tx.Exec(t.Context(), `UPDATE tasker.tasks SET name = 'single', template_uuid = (
		SELECT template_uuid FROM tasker.task_templates WHERE name = 'single') WHERE task_uuid = $1`, task)
	h.Must(err)
	replaced := make(chan error, 1)
	go func() {
		_, _, err := h.Engine.RegisterTemplate(t.Context(),
			tasker.Template{Namespace: enginetest.Namespace, Name: "single", Version: "1.0.0", Steps: []tasker.StepTemplate{enginetest.Step("third")}}, "")
		replaced <- err
	}()
	for waiting := false; !waiting; {
		h.Must(h.Admin().QueryRow(t.Context(), `SELECT EXISTS (
			SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting))
	}
	h.Must(tx.Commit(t.Context()))
	h.WantCode(<-replaced, tasker.Conflict, "as a new version")
	h.Drain()
}
