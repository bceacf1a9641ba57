package web_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// fail makes the steps of these names fail for good.
func fail(names ...string) func(tasker.Assignment) error {
	return func(a tasker.Assignment) error {
		for _, n := range names {
			if a.Name == n {
				return errors.New("the gateway says no to " + n)
			}
		}
		return nil
	}
}

// everyLook makes tasks of every look that the list knows, and returns them by it.
func (h *harness) everyLook() map[string]tasker.ID {
	h.Helper()
	h.Template("order", step("reserve"), step("charge", "reserve"), step("ship", "charge"))
	external := step("answer")
	external.Type, external.Handler = tasker.ExternalStep, tasker.Handler{}
	h.Template("question", external)
	again := step("poll")
	again.Retry = tasker.Retry{Retryable: true, MaxAttempts: 9, Backoff: tasker.ConstantBackoff, BaseMS: 600_000, MaxBackoffMS: 600_000}
	h.Template("poll", again)
	looks := map[string]tasker.ID{}
	looks["complete"] = h.create("order", `{"n":1}`)
	h.work(fail())
	looks["error"] = h.create("order", `{"n":2}`)
	h.work(fail("charge"))
	looks["waiting for dependencies"] = h.create("question", `{}`)
	looks["waiting for retry"] = h.create("poll", `{}`)
	list := h.claim(100)
	var outcomes []tasker.Outcome
	for _, a := range list {
		outcomes = append(outcomes, tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Message: "busy", Type: "test", Retryable: true}})
	}
	_, err := h.Engine.Report(h.Context(), h.worker, outcomes, 0)
	h.Must(err)
	looks["cancelled"] = h.create("order", `{"n":3}`)
	h.Must(h.Engine.CancelTask(h.Context(), looks["cancelled"], "Ada", "not needed"))
	looks["steps in process"] = h.create("order", `{"n":4}`)
	return looks
}

func TestTheListOfTasks(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	r := h.get("/ui/tasks")
	if r.status != http.StatusOK || !strings.Contains(r.text, "No tasks") {
		t.Errorf("without tasks: %d", r.status)
	}
	looks := h.everyLook()
	r = h.get("/ui/tasks")
	for look, id := range looks {
		if !strings.Contains(r.text, `href="/ui/tasks/`+id.String()+`"`) || !strings.Contains(r.text, ">"+look+"</span>") {
			t.Errorf("the list lacks %s, or its look %q", id, look)
		}
	}
	h.sees(r,
		`title="Under investigation: max retries exceeded"`, `aria-label="Under investigation: max retries exceeded"`, `class="skull under_investigation"`,
		"3 of 3 steps", "1 of 3 steps · 1 failed", "0 of 3 steps · 3 cancelled", "0 of 3 steps · 1 in progress", `<option value="shop">`)
	if n := strings.Count(r.text, `class="skull`); n != 1 {
		t.Errorf("%d of %d tasks have a badge, want the one with an investigation", n, len(looks))
	}
	for query, want := range map[string][]string{
		"state=error":                     {"error"},
		"state=complete&namespace=shop":   {"complete"},
		"name=question":                   {"waiting for dependencies"},
		"dead_lettered=true":              {"error"},
		"dead_lettered=true&name=poll":    nil,
		"dead_lettered=false&state=error": nil,
		"namespace=nowhere":               nil,
		"offset=5":                        {"complete"},
	} {
		r := h.get("/ui/tasks?" + query)
		if got := strings.Count(r.text, "<tr data-row"); r.status != http.StatusOK || got != len(want) {
			t.Errorf("%s: %d, %d tasks, want %v", query, r.status, got, want)
		}
		for _, look := range want {
			if !strings.Contains(r.text, "/ui/tasks/"+looks[look].String()) {
				t.Errorf("%s lacks %s", query, look)
			}
		}
		if want == nil && (!strings.Contains(r.text, "No task matches") || !strings.Contains(r.text, `<a href="/ui/tasks">Show all tasks`)) {
			t.Errorf("%s does not say that nothing matches", query)
		}
	}
	h.sees(h.get("/ui/tasks?offset=50"), "The list ends before this page")
}

func TestALongListOfTasksIsReadByThePage(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("reserve"))
	var list []tasker.NewTask
	for range 130 {
		list = append(list, tasker.NewTask{Namespace: enginetest.Namespace, Name: "order", Context: json.RawMessage(`{}`)})
	}
	_, err := h.Engine.CreateTasks(h.Context(), list)
	h.Must(err)
	before := h.DB.Pool().Stat().AcquireCount()
	r := h.get("/ui/tasks?state=steps_in_process")
	if n := h.DB.Pool().Stat().AcquireCount() - before; n != 5 {
		t.Errorf("%d queries, want two for the tasks and one each for the namespaces, what is held and the refused requests", n)
	}
	if strings.Count(r.text, "<tr data-row") != 100 || !strings.Contains(r.text, `href="/ui/tasks?offset=100&amp;state=steps_in_process"`) {
		t.Error("the first page has not a hundred tasks and a link to the next")
	}
	if r := h.get("/ui/tasks?state=steps_in_process&offset=100"); strings.Count(r.text, "<tr data-row") != 30 || !strings.Contains(r.text, `rel="prev"`) {
		t.Error("the second page has not thirty tasks and a link back")
	}
}

func TestAFilterThatMeansNothingIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for query, want := range map[string]string{
		"state=asleep":          "Invalid state",
		"dead_lettered=perhaps": "Invalid dead_lettered",
		"offset=-1":             "must be a number from 0",
		"namespace=%00":         "must be valid UTF-8 without NUL",
		"name=%ff":              "must be valid UTF-8 without NUL",
		"tag=%ff":               "must be valid UTF-8 without NUL",
		"created_after=today":   "must be a time such as",
		"created_before=1":      "must be a time such as",
		"attribute=x":           "NAME:VALUE",
		"attribute=x:y":         `Unknown attribute "x"`,
	} {
		h.shows(h.get("/ui/tasks?"+query), http.StatusBadRequest, want)
	}
}

func TestTasksAreFilteredByWhatTheyAreFoundBy(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("reserve"))
	plain := h.create("order", `{}`)
	made, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{
		Namespace: enginetest.Namespace, Name: "order", Initiator: "the till", SourceSystem: "web shop", Tags: []string{"vip & co"},
		CorrelationID: "corr-1", IdempotencyKey: "key-7",
	}})
	h.Must(err)
	found := made[0].TaskUUID
	for query, opens := range map[string]bool{
		"tag=vip+%26+co": false, "correlation_id=corr-1": false, "idempotency_key=key-7": true, "initiator=the+till": true, "source_system=web+shop": true,
		"tag=vip+%26+co&created_after=2026-01-01T00:00:00Z&created_before=2999-01-01T00:00:00Z": true,
	} {
		r := h.get("/ui/tasks?" + query)
		h.shows(r, http.StatusOK, pageOf(found), ">Clear</a>")
		h.lacks(r, pageOf(plain))
		if strings.Contains(r.text, "<details open>") != opens {
			t.Errorf("%s: the rest of the filters is open: %t", query, !opens)
		}
	}
	h.shows(h.get(pageOf(found)), http.StatusOK, `href="/ui/tasks?tag=vip+%26+co"`)
	h.shows(h.get("/ui/tasks?tag=none"), http.StatusOK, "No task matches", `value="none"`)
	h.shows(h.get("/ui/tasks?tag=vip+%26+co&tag=none&tag="), http.StatusOK, "No task matches", `value="none"`, `value="vip & co"`)
	h.shows(h.get("/ui/tasks?"+strings.Repeat("&tag=a", 11)), http.StatusBadRequest, "at most 10 values")
}

func TestATaskIsOpenedByItsID(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("reserve"))
	id := h.create("order", `{}`)
	if r := h.get("/ui/tasks?id=+" + id.String() + "+"); r.url != "/ui/tasks/"+id.String() || r.status != http.StatusOK {
		t.Errorf("%d at %s", r.status, r.url)
	}
	missing := tasker.NewID().String()
	if r := h.get("/ui/tasks?id=" + missing); r.status != http.StatusNotFound || !strings.Contains(r.text, "Task "+missing+" not found") || !strings.Contains(r.text, `value="`+missing+`"`) {
		t.Errorf("of no task: %d", r.status)
	}
	if r := h.get("/ui/tasks?id=%3Cb%3E"); r.status != http.StatusBadRequest || !strings.Contains(r.text, "Invalid task id") || strings.Contains(r.text, "<b>") {
		t.Errorf("of no id: %d", r.status)
	}
	e, err := h.DLQ.Open(h.Context(), id, tasker.NewEntry{Actor: "Ada", Reason: "look"})
	h.Must(err)
	h.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if r := h.get("/ui/tasks?id=" + e.UUID.String()); r.header.Get("Location") != "/ui/investigations/"+e.UUID.String() {
		t.Errorf("of an investigation: %d to %s", r.status, r.header.Get("Location"))
	}
}

func TestTasksInABrowser(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	looks := h.everyLook()
	tab := h.open("/ui/tasks")

	// By mouse: a filter is applied when it is chosen, and cleared.
	tab.ChooseAway("select[name=dead_lettered]", "true")
	tab.Until(`location.search.includes("dead_lettered=true") && document.querySelectorAll("[data-row]").length === 1`)
	if title := tab.Texts("a.skull"); len(title) != 1 {
		t.Errorf("%d badges, want one", len(title))
	}
	tab.ChooseAway("select[name=state]", "cancelled")
	tab.Sees("No task matches")
	tab.Follow(".empty a")
	tab.Until(`document.querySelectorAll("[data-row]").length === 6`)

	// By keys: into the filters, down the rows, into a task.
	tab.Keys("/")
	tab.Until(`document.activeElement.name === "state"`)
	tab.Keys("\x1b")
	tab.Keys("jj")
	tab.Until(`document.activeElement.closest("[data-row]") === document.querySelectorAll("[data-row]")[1]`)
	tab.KeysAway("\r")
	if at := tab.Address(); !strings.HasSuffix(at, looks["cancelled"].String()) {
		t.Errorf("the second row leads to %s", at)
	}
	tab.KeysAway("gt")
	tab.Keys("f")
	tab.Until(`document.activeElement.name === "id"`)
	tab.Type("input[name=id]", looks["error"].String())
	tab.KeysAway("\r")
	if at := tab.Address(); !strings.HasSuffix(at, looks["error"].String()) {
		t.Errorf("the id leads to %s", at)
	}
}
