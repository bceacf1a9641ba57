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
)

func TestTheSameKeyGivesTheSameTask(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.template("single", step("one"))
	r := tasker.NewTask{Namespace: space, Name: "single", IdempotencyKey: "k", Context: json.RawMessage(`{"a": 1, "b": 2}`)}
	first := h.createWith(r)
	r.Context = json.RawMessage(`{"b": 2, "a": 1}`)
	created, err := h.engine.CreateTasks(t.Context(), []tasker.NewTask{r})
	h.must(err)
	if created[0].TaskUUID != first || created[0].New {
		t.Errorf("created %+v, want %s again", created[0], first)
	}
	r.Context = json.RawMessage(`{"a": 3}`)
	_, err = h.engine.CreateTasks(t.Context(), []tasker.NewTask{r})
	h.wantCode(err, tasker.Conflict, first.String())
	r.IdempotencyKey = "other"
	_, err = h.engine.CreateTasks(t.Context(), []tasker.NewTask{r, r, {Namespace: space, Name: "single"}})
	h.must(err)
	if n := h.drain(); n != 3 {
		t.Errorf("%d tasks, want 3", n)
	}
}

func TestOneKeyAtOnceGivesOneTask(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.template("single", step("one"))
	ids := make([]tasker.ID, 16)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			created, err := h.engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: space, Name: "single", IdempotencyKey: "k"}})
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
	h := newHouse(t)
	h.template("single", step("one"))
	good := tasker.NewTask{Namespace: space, Name: "single"}
	bad := tasker.NewTask{Namespace: space, Name: "nothing"}
	_, err := h.engine.CreateTasks(t.Context(), []tasker.NewTask{good, bad, good})
	h.wantCode(err, tasker.NotFound, "tasks[1]", "no template shop/nothing")
	list, _, err := h.db.Tasks(t.Context(), tasker.TaskFilter{Limit: 10})
	h.must(err)
	if len(list) != 0 {
		t.Errorf("%d tasks were made", len(list))
	}
	many := slices.Repeat([]tasker.NewTask{good}, 1000)
	created, err := h.engine.CreateTasks(t.Context(), many)
	h.must(err)
	if len(created) != 1000 {
		t.Errorf("%d created", len(created))
	}
	_, err = h.engine.CreateTasks(t.Context(), append(many, good))
	h.wantCode(err, tasker.Invalid, "1 to 1000")
}

func TestBulkIsBoundedByItsSteps(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	steps := make([]tasker.StepTemplate, 1000)
	for i := range steps {
		steps[i] = step(fmt.Sprint("s", i))
	}
	h.template("wide", steps...)
	many := slices.Repeat([]tasker.NewTask{{Namespace: space, Name: "wide"}}, 51)
	_, err := h.engine.CreateTasks(t.Context(), many)
	h.wantCode(err, tasker.TooLarge, "tasks[50]", "50000 steps")
	created, err := h.engine.CreateTasks(t.Context(), many[:1])
	h.must(err)
	h.must(h.engine.CancelTask(t.Context(), created[0].TaskUUID, "ann", "too wide"))
}

func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	_, _, err := h.engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: space, Name: "single", Version: "1.0.0", Steps: []tasker.StepTemplate{step("one")},
		InputSchema: json.RawMessage(`{"type": "object", "required": ["order"], "properties": {"order": {"type": "integer"}}}`),
	}, "")
	h.must(err)
	ok := json.RawMessage(`{"order": 1}`)
	for _, tt := range []struct {
		name    string
		request tasker.NewTask
		code    tasker.Code
		says    string
	}{
		{"no name", tasker.NewTask{Namespace: space, Context: ok}, tasker.Invalid, "name: is missing"},
		{"no such version", tasker.NewTask{Namespace: space, Name: "single", Version: "2.0.0", Context: ok}, tasker.NotFound, "single 2.0.0"},
		{"context is a list", tasker.NewTask{Namespace: space, Name: "single", Context: json.RawMessage(`[]`)}, tasker.Invalid, "context: must be a JSON object"},
		{"context is not JSON", tasker.NewTask{Namespace: space, Name: "single", Context: json.RawMessage(`{`)}, tasker.Invalid, "context: "},
		{"context is two documents", tasker.NewTask{Namespace: space, Name: "single", Context: json.RawMessage(`{} {}`)}, tasker.Invalid, "more text after the end"},
		{"context has a NUL", tasker.NewTask{Namespace: space, Name: "single", Context: json.RawMessage(`{"order": 1, "a": "\u0000"}`)}, tasker.Invalid, "NUL"},
		{"context lacks a key", tasker.NewTask{Namespace: space, Name: "single"}, tasker.Invalid, "context"},
		{"context has a wrong type", tasker.NewTask{Namespace: space, Name: "single", Context: json.RawMessage(`{"order": "x"}`)}, tasker.Invalid, "order"},
		{"context is too large", tasker.NewTask{Namespace: space, Name: "single", Context: json.RawMessage(`{"a":"` + strings.Repeat("x", 2<<20) + `"}`)}, tasker.TooLarge, "limit"},
		{"a tag is empty", tasker.NewTask{Namespace: space, Name: "single", Context: ok, Tags: []string{"a", ""}}, tasker.Invalid, "tags[1]"},
		{"priority is absurd", tasker.NewTask{Namespace: space, Name: "single", Context: ok, Priority: 5000}, tasker.Invalid, "priority: must be from -1000 to 1000"},
		{"reason has a NUL", tasker.NewTask{Namespace: space, Name: "single", Context: ok, Reason: "a\x00"}, tasker.Invalid, "reason: has a NUL"},
		{"start is absurd", tasker.NewTask{Namespace: space, Name: "single", Context: ok, StartAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, tasker.Invalid, "start_at"},
		{"recreated from nothing", tasker.NewTask{Namespace: space, Name: "single", Context: ok, RecreatedFrom: tasker.NewID()}, tasker.Invalid, "recreated_from"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := h.engine.CreateTasks(t.Context(), []tasker.NewTask{tt.request})
			h.wantCode(err, tt.code, tt.says)
		})
	}
	list, _, err := h.db.Tasks(t.Context(), tasker.TaskFilter{Limit: 10})
	h.must(err)
	if len(list) != 0 {
		t.Errorf("%d tasks were made", len(list))
	}
}

func TestACycleIsAnInvestigationAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.template("loop", step("a", "c"), step("b", "a"), step("c", "b"), step("d"))
	task := h.create("loop")
	h.wantState(task, tasker.TaskError)
	e := h.entry(task)
	if e.Reason != tasker.DependencyCycleDetected || e.OriginalState != tasker.TaskInitializing {
		t.Errorf("entry %s from %s", e.Reason, e.OriginalState)
	}
	if got := h.history(task); got != "pending initializing error" {
		t.Errorf("history %s", got)
	}
	list, _, err := h.db.TaskTransitions(t.Context(), task, 10, 0)
	h.must(err)
	if r := list[len(list)-1].Reason; !strings.Contains(r, " -> ") {
		t.Errorf("reason %q does not name the cycle", r)
	}
	if got := h.claim(); len(got) != 0 {
		t.Errorf("steps of a task with a cycle run: %v", names(got))
	}
}

func TestTemplatesNeverChangeOnceUsed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.template("single", step("one"))
	h.template("single", step("other")) // nobody has used it
	task := h.create("single")
	h.claimOne("other")
	h.step(task, "other")
	_, _, err := h.engine.RegisterTemplate(t.Context(),
		tasker.Template{Namespace: space, Name: "single", Version: "1.0.0", Steps: []tasker.StepTemplate{step("third")}}, "")
	h.wantCode(err, tasker.Conflict, "raise version")
	stored, created, err := h.engine.RegisterTemplate(t.Context(),
		tasker.Template{Namespace: space, Name: "single", Version: "1.1.0", Steps: []tasker.StepTemplate{step("third")}}, "")
	h.must(err)
	if !created || stored.Version != "1.1.0" {
		t.Errorf("stored %s, created %v", stored.Version, created)
	}
	h.step(h.create("single"), "third") // the newest
	h.step(h.createWith(tasker.NewTask{Namespace: space, Name: "single", Version: "1.0.0"}), "other")
}

// A version that gets its first task while it is being replaced is used.
func TestATemplateIsReplacedWhileItsFirstTaskIsMade(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.template("single", step("one"))
	h.template("other", step("one"))
	task := h.create("other")
	tx, err := h.pool.Begin(t.Context())
	h.must(err)
	_, err = tx.Exec(t.Context(), `UPDATE tasker.tasks SET name = 'single', template_uuid = (
		SELECT template_uuid FROM tasker.task_templates WHERE name = 'single') WHERE task_uuid = $1`, task)
	h.must(err)
	replaced := make(chan error, 1)
	go func() {
		_, _, err := h.engine.RegisterTemplate(t.Context(),
			tasker.Template{Namespace: space, Name: "single", Version: "1.0.0", Steps: []tasker.StepTemplate{step("third")}}, "")
		replaced <- err
	}()
	for waiting := false; !waiting; {
		h.must(h.pool.QueryRow(t.Context(), `SELECT EXISTS (
			SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting))
	}
	h.must(tx.Commit(t.Context()))
	h.wantCode(<-replaced, tasker.Conflict, "raise version")
	h.drain()
}
