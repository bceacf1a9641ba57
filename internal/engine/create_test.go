package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

func TestTheSameKeyGivesTheSameTask(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	r := tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", IdempotencyKey: "k", Context: json.RawMessage(`{"a": 1, "b": 2}`)}
	first := h.CreateWith(r)
	r.Context = json.RawMessage(`{"b": 2, "a": 1}`)
	created, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{r})
	h.Must(err)
	if created[0].TaskUUID != first || created[0].New {
		t.Errorf("created %+v, want %s again", created[0], first)
	}
	r.Context = json.RawMessage(`{"a": 3}`)
	_, err = h.Engine.CreateTasks(t.Context(), []tasker.NewTask{r})
	h.WantCode(err, tasker.Conflict, first.String())
	r.IdempotencyKey = "other"
	_, err = h.Engine.CreateTasks(t.Context(), []tasker.NewTask{r, r, {Namespace: enginetest.Namespace, Name: "single"}})
	h.Must(err)
	if n := h.drain(); n != 3 {
		t.Errorf("%d tasks, want 3", n)
	}
}

func TestOneKeyAtOnceGivesOneTask(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	ids := make([]tasker.ID, 16)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			created, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "single", IdempotencyKey: "k"}})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = created[0].TaskUUID
		})
	}
	wg.Wait()
	if len(slices.Compact(ids)) != 1 {
		t.Errorf("several tasks: %v", ids)
	}
	h.drain()
}

func TestBulkIsAllOrNothing(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	good := tasker.NewTask{Namespace: enginetest.Namespace, Name: "single"}
	bad := tasker.NewTask{Namespace: enginetest.Namespace, Name: "nothing"}
	_, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{good, bad, good})
	h.WantCode(err, tasker.NotFound, "tasks[1]", "template shop/nothing not found")
	list, _, err := h.DB.Tasks(t.Context(), tasker.TaskFilter{Limit: 10})
	h.Must(err)
	if len(list) != 0 {
		t.Errorf("%d tasks were made", len(list))
	}
	many := slices.Repeat([]tasker.NewTask{good}, 1000)
	created, err := h.Engine.CreateTasks(t.Context(), many)
	h.Must(err)
	if len(created) != 1000 {
		t.Errorf("%d created", len(created))
	}
	_, err = h.Engine.CreateTasks(t.Context(), append(many, good))
	h.WantCode(err, tasker.Invalid, "1 to 1000")
}

func TestBulkIsBoundedByItsSteps(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	steps := make([]tasker.StepTemplate, 1000)
	for i := range steps {
		steps[i] = enginetest.Step(fmt.Sprint("s", i))
	}
	h.Template("wide", steps...)
	many := slices.Repeat([]tasker.NewTask{{Namespace: enginetest.Namespace, Name: "wide"}}, 51)
	_, err := h.Engine.CreateTasks(t.Context(), many)
	h.WantCode(err, tasker.TooLarge, "tasks[50]", "50000 steps")
	created, err := h.Engine.CreateTasks(t.Context(), many[:1])
	h.Must(err)
	h.Must(h.Engine.CancelTask(t.Context(), created[0].TaskUUID, "ann", "too wide"))
}

func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: enginetest.Namespace, Name: "single", Version: "1.0.0", Steps: []tasker.StepTemplate{enginetest.Step("one")},
		InputSchema: json.RawMessage(`{"type": "object", "required": ["order"], "properties": {"order": {"type": "integer"}}}`),
	}, "")
	h.Must(err)
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
		{"reason has a NUL", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Context: ok, Reason: "a\x00"}, tasker.Invalid, "reason: has a NUL"},
		{"start is absurd", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Context: ok, StartAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, tasker.Invalid, "start_at"},
		{"recreated from nothing", tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Context: ok, RecreatedFrom: tasker.NewID()}, tasker.Invalid, "recreated_from"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{tt.request})
			h.WantCode(err, tt.code, tt.says)
		})
	}
	list, _, err := h.DB.Tasks(t.Context(), tasker.TaskFilter{Limit: 10})
	h.Must(err)
	if len(list) != 0 {
		t.Errorf("%d tasks were made", len(list))
	}
}

func TestACycleIsAnInvestigationAtOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("loop", enginetest.Step("a", "c"), enginetest.Step("b", "a"), enginetest.Step("c", "b"), enginetest.Step("d"))
	task := h.Create("loop")
	h.wantState(task, tasker.TaskError)
	e := h.Entry(task)
	if e.Reason != tasker.DependencyCycleDetected || e.OriginalState != tasker.TaskInitializing {
		t.Errorf("entry %s from %s", e.Reason, e.OriginalState)
	}
	if got := h.history(task); got != "pending initializing error" {
		t.Errorf("history %s", got)
	}
	list, _, err := h.DB.TaskTransitions(t.Context(), task, 10, 0)
	h.Must(err)
	if r := list[len(list)-1].Reason; !strings.Contains(r, " -> ") {
		t.Errorf("reason %q does not name the cycle", r)
	}
	if got := h.claim(); len(got) != 0 {
		t.Errorf("steps of a task with a cycle run: %v", names(got))
	}
}

func TestTemplatesNeverChangeOnceUsed(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	h.Template("single", enginetest.Step("other")) // nobody has used it
	task := h.Create("single")
	h.claimOne("other")
	h.step(task, "other")
	_, _, err := h.Engine.RegisterTemplate(t.Context(),
		tasker.Template{Namespace: enginetest.Namespace, Name: "single", Version: "1.0.0", Steps: []tasker.StepTemplate{enginetest.Step("third")}}, "")
	h.WantCode(err, tasker.Conflict, "as a new version")
	stored, created, err := h.Engine.RegisterTemplate(t.Context(),
		tasker.Template{Namespace: enginetest.Namespace, Name: "single", Version: "1.1.0", Steps: []tasker.StepTemplate{enginetest.Step("third")}}, "")
	h.Must(err)
	if !created || stored.Version != "1.1.0" {
		t.Errorf("stored %s, created %v", stored.Version, created)
	}
	h.step(h.Create("single"), "third") // the newest
	h.step(h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Version: "1.0.0"}), "other")
}

// A version that gets its first task while it is being replaced is used.
func TestATemplateIsReplacedWhileItsFirstTaskIsMade(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	h.Template("other", enginetest.Step("one"))
	task := h.Create("other")
	tx, err := h.pool.Begin(t.Context())
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
		h.Must(h.pool.QueryRow(t.Context(), `SELECT EXISTS (
			SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting))
	}
	h.Must(tx.Commit(t.Context()))
	h.WantCode(<-replaced, tasker.Conflict, "as a new version")
	h.drain()
}
