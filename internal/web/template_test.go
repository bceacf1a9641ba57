package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/web"
)

// The list of templates leads to each version, which shows its steps, and to its tasks.
func TestTemplatesAreShown(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.sees(h.get("/ui/templates"), "No templates")
	h.register("order", "1.0.0", step("reserve"), step("charge", "reserve"))
	h.register("order", "1.1.0", step("reserve"), step("charge", "reserve"), tasker.StepTemplate{
		Name: "ship", Type: tasker.MapStep, Over: "context.parcels", Dependencies: []string{"charge"}, Handler: tasker.Handler{Callable: "carry"}, When: "context.ships == true",
	})
	h.register("<b>", "1.0.0", step("one"))
	r := h.get("/ui/templates")
	path := "/ui/templates/" + h.Space + "/order/1.1.0"
	h.sees(r, `href="`+path+`"`, "order/1.0.0", "&lt;b&gt;", "%3Cb%3E/1.0.0")
	h.lacks(r, "<b>", "were rejected")
	if newer, older := strings.Index(r.text, "order/1.1.0"), strings.Index(r.text, "order/1.0.0"); newer > older {
		t.Error("the newest version is not the first")
	}
	h.sees(h.get("/ui/templates?namespace=nowhere"), "No templates in this namespace")
	h.refused(h.get("/ui/templates?offset=x"), http.StatusBadRequest, "offset")
	r = h.get(path)
	h.sees(r, "Version 1.1.0", "3 steps", "carry", "context.ships == true", `href="/ui/tasks?name=order&amp;namespace=`+h.Space+`"`, "/order/1.0.0", path+"/retire", path+"/change-tasks", `class="name"`)
	h.lacks(h.get("/ui/templates/"+h.Space+"/%3Cb%3E/1.0.0"), "<b>", "/change-tasks")
	h.refused(h.get("/ui/templates/"+h.Space+"/order/9.0.0"), http.StatusNotFound, "not found")
}

// What this server did not register of its files is on the list of templates.
func TestBrokenTemplateFilesAreShown(t *testing.T) {
	t.Parallel()
	faults := make([]string, 23)
	for i := range faults {
		faults[i] = "orders/<a>.yaml: line 3: unknown key"
	}
	h := newHarness(t, func(o *web.Options) { o.TemplateFaults = faults })
	r := h.get("/ui/templates")
	h.sees(r, "were rejected", "orders/&lt;a&gt;.yaml: line 3: unknown key", "3 more errors")
}

// A version is retired, takes no new tasks, and takes them again.
func TestATemplateIsRetiredOnItsPage(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register("order", "1.0.0", step("reserve"))
	path := "/ui/templates/" + h.Space + "/order/1.0.0"
	h.refused(h.get(path+"/unretire"), http.StatusConflict, "already unretired")
	h.sees(h.get(path+"/retire"), "New tasks cannot use this version", "template retire "+h.Space+" order 1.0.0", "/v1/templates/"+h.Space+"/order/1.0.0/retire")
	h.refused(h.post(path+"/retire", "actor=Kim"), http.StatusBadRequest, "The reason is missing")
	r := h.post(path+"/retire", "actor=Kim", "reason=ships <twice>")
	h.at(r, path)
	h.sees(r, "The version was retired.", "by <bdi>Kim</bdi>", "ships &lt;twice&gt;", path+"/unretire")
	h.sees(h.get("/ui/templates"), "retired")
	if _, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: h.Space, Name: "order", Version: "1.0.0"}}); tasker.CodeOf(err) != tasker.Conflict {
		t.Errorf("a task of a retired version: %v", err)
	}
	h.refused(h.post(path+"/retire", "actor=Kim", "reason=again"), http.StatusConflict, "already retired")
	h.sees(h.post(path+"/unretire", "actor=Kim", "reason=repaired"), "The version was unretired.")
	if _, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: h.Space, Name: "order", Version: "1.0.0"}}); err != nil {
		t.Errorf("a task of a version that is not retired any more: %v", err)
	}
}

// The page of a version says what would become of its open tasks in another version, and
// brings those there that can be, a part at a time.
func TestTheTasksOfAVersionAreChanged(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register("order", "1.0.0", step("reserve"), step("charge", "reserve"))
	path := "/ui/templates/" + h.Space + "/order/1.0.0/change-tasks"
	h.refused(h.get(path), http.StatusConflict, "no other version for new tasks")
	h.register("order", "1.1.0", step("reserve"), step("charge", "reserve"), step("ship", "charge"))
	h.register("order", "0.9.0", step("charge"))
	h.refused(h.get(path+"?to=1.1.0"), http.StatusConflict, "No open task has version 1.0.0")
	version := func(task tasker.ID) string {
		found, err := h.DB.Task(t.Context(), task)
		h.Must(err)
		return found.Version
	}
	const tasks = tasker.MaxVersionBatch + 2
	list := make([]tasker.ID, tasks)
	for i := range list {
		list[i] = h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Version: "1.0.0"})
	}
	// A request looks at as many as it has time for, a hundred at most.
	r := h.get(path + "?to=0.9.0")
	h.sees(r, "the new version has no step reserve", `href="?to=1.1.0"`)
	h.matches(r, `begun step missing: ([1-9]\d?|100) tasks?`, `, 0 move to version 0\.9\.0`)
	r = h.get(path + "?to=1.1.0")
	h.matches(r, `Of the newest ([1-9]\d?|100) open tasks?, ([1-9]\d?|100) moves? to version 1\.1\.0`)
	h.sees(r, "The form then shows the next batch", "retire it first", "template change-tasks "+h.Space+" order 1.0.0", "/change_tasks")
	h.refused(h.get(path+"?to=7.0.0"), http.StatusConflict, "not found")
	h.refused(h.get(path+"?to=1.1.0&before=x"), http.StatusConflict, "Invalid before")
	h.refused(h.post(path, "actor=Kim", "to=1.1.0"), http.StatusBadRequest, "The reason is missing")
	if v := version(list[0]); v != "1.0.0" {
		t.Fatalf("a plan changed a task to %s", v)
	}
	old := func() (n int) { // of the oldest, because the newest are changed first
		for n < tasks && version(list[n]) == "1.0.0" {
			n++
		}
		return n
	}
	for left, before := tasks, ""; left > 0; {
		was := left
		r = h.post(path, "actor=Kim", "to=1.1.0", "before="+before, "reason=it ships now")
		if left = old(); left >= was || was-left > tasker.MaxVersionBatch {
			t.Fatalf("%d tasks were of the old version, and %d are", was, left)
		}
		noun := map[bool]string{true: "task", false: "tasks"}[was-left == 1]
		said := fmt.Sprintf("%d %s moved to version 1.1.0; 0 refused.", was-left, noun)
		if left == 0 {
			h.sees(r, said)
			break
		}
		h.sees(r, said+" This page shows the next batch.")
		h.matches(r, `Of the next [1-9]\d* open tasks?, [1-9]\d* moves? to`)
		from, err := url.Parse(r.url)
		h.Must(err)
		if before = from.Query().Get("before"); from.Path != path || before != list[left].String() {
			t.Fatalf("it leads to %s", r.url)
		}
	}
	for i, task := range list {
		if v := version(task); v != "1.1.0" {
			t.Errorf("task %d is of %s", i, v)
		}
	}
}

// register registers a version of a template.
func (h *harness) register(name, version string, steps ...tasker.StepTemplate) {
	h.Helper()
	_, _, err := h.Engine.RegisterTemplate(h.Context(), tasker.Template{Namespace: h.Space, Name: name, Version: version, Steps: steps}, "")
	h.Must(err)
}
