package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// The list of tasks, narrowed to some, leads to a form that says which they are and cancels them.
func TestTheTasksOfAFilterAreCancelled(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("reserve"))
	const path = "/ui/cancel-tasks"
	create := func(tags ...string) tasker.ID {
		return h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Tags: tags})
	}
	other := create()
	var tagged []tasker.ID
	for range tasker.MaxCancelBatch + 1 {
		tagged = append(tagged, create("spring"))
	}
	h.lacks(h.get("/ui/tasks"), path)
	h.sees(h.get("/ui/tasks?tag=spring"), `href="`+path+`?tag=spring"`)
	h.refused(h.get(path), http.StatusConflict, "ilter too broad")
	h.refused(h.get(path+"?tag=summer"), http.StatusConflict, "No open task matches the filter")
	h.refused(h.get(path+"?state=odd"), http.StatusBadRequest, "state")
	r := h.get(path + "?tag=spring&state=steps_in_process")
	h.sees(r, "Cancels 100 open tasks with their open steps", "More tasks match", "/ui/tasks/"+tagged[tasker.MaxCancelBatch].String(),
		"task cancel-all --status steps_in_process", "--tag spring", "/v1/tasks/cancel?status=steps_in_process", "tag=spring")
	h.refused(h.post(path+"?tag=spring", "actor=Kim"), http.StatusBadRequest, "The reason is missing")
	h.sees(r, `name="until" value="20`)
	h.refused(h.post(path+"?tag=spring", "actor=Kim", "reason=off", "until=2026-01-01T00:00:00Z"), http.StatusConflict, "No open task matches the filter") // nor was there one when the form was opened
	h.refused(h.post(path+"?tag=spring", "actor=Kim", "reason=off", "until=soon"), http.StatusBadRequest, "Invalid time")
	open := func() (n int) {
		for _, task := range tagged {
			if h.State(task) != tasker.TaskCancelled {
				n++
			}
		}
		return n
	}
	// A request cancels as many as it has time for, a hundred at most.
	for left := len(tagged); left > 0; {
		was := left
		r = h.post(path+"?tag=spring", "actor=Kim", "reason=the campaign is off")
		if left = open(); left >= was || was-left > tasker.MaxCancelBatch {
			t.Fatalf("%d tasks were open, and %d are", was, left)
		}
		said, next := fmt.Sprintf("%d tasks cancelled.", was-left), " open tasks with their open steps"
		if was-left == 1 {
			said = "1 task cancelled."
		}
		if left == 1 {
			next = "Cancels 1 open task with its open steps"
		}
		if left == 0 {
			h.sees(r, said)
			continue
		}
		if h.sees(r, said+" This page shows the next batch.", next); !strings.HasPrefix(r.url, path) {
			t.Errorf("it leads to %s", r.url)
		}
	}
	h.at(r, "/ui/tasks?tag=spring")
	if s := h.State(other); s != tasker.TaskStepsInProcess {
		t.Errorf("the other task is %s", s)
	}
}

// A task that the server cannot cancel is said, and the page does not begin anew for ever.
func TestATaskOfAFilterThatIsNotCancelled(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("reserve"))
	task := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "order"})
	h.Exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
	h.Exec(`CREATE TRIGGER broken BEFORE UPDATE ON tasker.tasks FOR EACH ROW WHEN (NEW.state = 'cancelled') EXECUTE FUNCTION public.refuse()`)
	r := h.post("/ui/cancel-tasks?name=order", "actor=Kim", "reason=off")
	h.sees(r, "0 tasks cancelled.", "1 task could not be cancelled")
	if s := h.State(task); s != tasker.TaskStepsInProcess || r.url != "/ui/tasks?name=order" {
		t.Errorf("the task is %s; it leads to %s", s, r.url)
	}
}
