package web_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"tasker.example/tasker"
)

func TestCancellingATask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("reserve"), step("charge", "reserve"))
	task := h.create("order", `{}`)
	list := h.claim(1)
	path := pageOf(task) + "/cancel"
	r := h.get(path)
	h.sees(r, "What will happen", "2 steps are cancelled", "the worker loses its lease", "charge", "reserve", "task cancel "+task.String(), "-X DELETE")

	h.refused(h.post(path, "actor=Kim"), http.StatusBadRequest, "The reason is missing")
	r = h.post(path, "reason=the customer's \"gone\"")
	h.refused(r, http.StatusBadRequest, "Your name is missing")
	h.sees(r, "the customer&#39;s &#34;gone&#34;</textarea>")
	h.refused(h.post(path, "actor=Kim", "reason="+strings.Repeat("x", 2001)), http.StatusBadRequest, "2001 characters: the limit is 2000")
	h.refused(h.post(path, "actor=Kim", "reason=a\x00b"), http.StatusBadRequest, "NUL")
	if got, err := h.DB.Task(t.Context(), task); err != nil || got.State == tasker.TaskCancelled {
		t.Fatalf("the task is %s, %v", got.State, err)
	}

	r = h.post(path, "actor=Kim", "reason=the customer is gone")
	h.at(r, pageOf(task))
	h.sees(r, "The task was cancelled.", "the customer is gone", "Kim")
	h.sees(h.get(path), "The task is cancelled: there is nothing to cancel.")
	h.refused(h.post(path, "actor=Kim", "reason=again"), http.StatusConflict, "The task is cancelled: there is nothing to cancel.")
	receipt, err := h.Engine.Report(t.Context(), h.worker, []tasker.Outcome{{Lease: list[0].Lease(), Success: true, Result: []byte("1")}}, 0)
	if err != nil || len(receipt.Rejected) != 1 {
		t.Errorf("the worker's report: %+v, %v; want it refused", receipt, err)
	}

	done := h.create("order", `{}`)
	h.work(func(tasker.Assignment) error { return nil })
	h.refused(h.post(pageOf(done)+"/cancel", "actor=Kim", "reason=late"), http.StatusConflict, "complete")
	h.refused(h.get("/ui/tasks/"+tasker.NewID().String()+"/cancel"), http.StatusNotFound, "not found")
	h.refused(h.post("/ui/tasks/7/cancel", "actor=Kim", "reason=x"), http.StatusNotFound, "must be a UUID")
}

func TestInvestigatingATask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	task := h.create("order", `{}`)
	path := pageOf(task) + "/investigate"
	h.sees(h.get(path), "dlq create "+task.String(), "/v1/dlq/task/"+task.String())
	h.refused(h.post(path, "actor=Kim"), http.StatusBadRequest, "The reason is missing")
	r := h.post(path, "actor=Kim", "reason=it looks odd")
	e := h.Entry(task)
	h.at(r, "/ui/investigations/"+e.UUID.String())
	h.sees(r, "The investigation is open.", "Kim opened this investigation", "it looks odd")
	h.sees(h.get(path), e.UUID.String())
	r = h.post(path, "actor=Kim", "reason=twice")
	if r.status != http.StatusConflict {
		t.Errorf("a second one: %d", r.status)
	}
	h.refused(h.get("/ui/tasks/"+tasker.NewID().String()+"/investigate"), http.StatusNotFound, "not found")
}

// Where something can be undone the form offers it, and the page of the task says that it is.
func TestCancellingATaskWithCompensation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	reserve := step("reserve")
	reserve.OnFailure = &tasker.OnFailure{Compensate: "run", Retry: tasker.DefaultUndoRetry()}
	h.Template("order", reserve, step("charge", "reserve"))
	task := h.create("order", `{}`)
	path := pageOf(task) + "/cancel"
	h.lacks(h.get(path), `name="compensate"`)
	list := h.claim(1)
	h.report(tasker.Outcome{Lease: list[0].Lease(), Success: true, Result: []byte(`{}`)})
	h.sees(h.get(path), `name="compensate"`, "Compensate 1 step in reverse order", "unless you select it below")
	r := h.post(path, "actor=Kim", "compensate=1")
	h.refused(r, http.StatusBadRequest, "The reason is missing")
	h.sees(r, `name="compensate" value="1" checked`, "--compensate", "compensate=true")
	h.sees(h.post(path, "actor=Kim", "reason=gone", "compensate=1"), "Compensation is running; then the task is cancelled.", "undo:reserve")
	r = h.get(path)
	h.sees(r, "Compensation is running and will stop")
	h.lacks(r, `name="compensate"`)
	h.sees(h.post(path, "actor=Kim", "reason=no"), "The task was cancelled.", "compensation stopped.")
}

// The form that ends an investigation as permanently failed has the task undone as well; the undo
// that fails has an investigation of its own, which the pages repair.
func TestWritingOffATaskWithCompensation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	reserve, charge := step("reserve"), step("charge", "reserve")
	reserve.OnFailure = &tasker.OnFailure{Compensate: "run", Retry: tasker.DefaultUndoRetry()}
	h.Template("order", reserve, charge)
	task := h.create("order", `{}`)
	one := func(o tasker.Outcome) {
		t.Helper()
		list := h.claim(1)
		o.Lease = list[0].Lease()
		_, err := h.Engine.Report(t.Context(), h.worker, []tasker.Outcome{o}, 0)
		h.Must(err)
	}
	lost := tasker.Outcome{Failure: &tasker.Failure{Message: "no"}}
	one(tasker.Outcome{Success: true, Result: []byte(`{}`)})
	one(lost)
	path := "/ui/investigations/" + h.Entry(task).UUID.String() + "/update"
	r := h.get(path)
	h.sees(r, `name="compensate"`, "compensates 1 completed step")
	seen := "seen=" + regexp.MustCompile(`name="seen" value="([^"]*)"`).FindStringSubmatch(r.text)[1]
	r = h.post(path, "actor=Kim", "notes=gone", "status=manually_resolved", "compensate=1", seen)
	h.refused(r, http.StatusBadRequest, "ompensation requires the status permanently failed")
	r = h.post(path, "actor=Kim", "status=permanently_failed", "compensate=1", seen)
	h.refused(r, http.StatusBadRequest, "The notes are missing")
	h.sees(r, `name="compensate" value="1" checked`, "--compensate", "compensate&#34;:true")
	h.sees(h.post(path, "actor=Kim", "notes=gone", "status=permanently_failed", "compensate=1", seen), "Compensation is running; then the task is cancelled.")
	h.sees(h.get(pageOf(task)), "Compensation is running.", "undo:reserve")

	one(lost)
	failed := h.Entry(task)
	if failed.ResolutionStatus != tasker.EntryPending {
		t.Fatalf("the investigation of the undo is %+v", failed)
	}
	h.lacks(h.get("/ui/investigations/"+failed.UUID.String()+"/update"), `name="compensate"`)
	h.sees(h.post(pageOf(task)+"/steps/"+failed.StepUUID.String()+"/reset", "actor=Kim", "reason=again", "entry="+failed.UUID.String()), "Step undo:reserve was reset")
	one(tasker.Outcome{Success: true, Result: []byte(`{}`)})
	h.sees(h.get(pageOf(task)), "compensated.")
}

// What the forms show for a terminal does what they do.
func TestShownCommandsActOnATask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	const reason = `it's "odd" $HOME ` + "`id`"
	for _, tool := range []string{"tasker-ctl", "curl"} {
		for _, action := range []string{"cancel", "investigate"} {
			task := h.create("order", `{}`)
			// Refused for the name, so that the page shows what was typed.
			r := h.post(pageOf(task)+"/"+action, "reason="+reason, "actor=Ann\nO'Hara")
			h.refused(r, http.StatusBadRequest, "must be one line")
			h.call(tool, r)
			h.wantDone(task, action, reason)
		}
	}
}

// wantDone checks what became of a task that somebody acted on.
func (h *harness) wantDone(task tasker.ID, action, reason string) {
	h.Helper()
	if action == "investigate" {
		e := h.Entry(task)
		e, err := h.DB.Entry(h.Context(), e.UUID)
		h.Must(err)
		if len(e.History) != 1 || *e.History[0].Notes != reason {
			h.Errorf("the investigation says %+v", e.History)
		}
		return
	}
	moves, _, err := h.DB.NewestTaskTransitions(h.Context(), task, 1)
	h.Must(err)
	if len(moves) != 1 || moves[0].To != string(tasker.TaskCancelled) || moves[0].Reason != reason {
		h.Errorf("the task has moved as %+v", moves)
	}
}
