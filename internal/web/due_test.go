package web_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// Due times are shown with tasks and steps, and changed by a form; what is overdue is found.
func TestDueTimes(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("parcel", enginetest.Step("pack"), enginetest.Step("ship", "pack"))
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "parcel", DueAfter: time.Hour})
	page := "/ui/tasks/" + task.String()
	h.shows(h.get(page), http.StatusOK, "<dt>Due</dt><dd>due ", page+"/due")
	h.shows(h.get("/ui/tasks?overdue=1"), http.StatusOK, "No task matches", `name="overdue" value="1" checked`)
	h.shows(h.get("/ui/tasks?due_before=2999-01-31T12:00:00Z"), http.StatusOK, page, "By due time")
	h.shows(h.get("/ui/tasks?due_before=soon"), http.StatusBadRequest, "must be a time such as")
	h.shows(h.get(page+"/due"), http.StatusOK, "task due "+task.String()+" --at ", "/v1/tasks/"+task.String()+"/due", "Current: due ")
	h.shows(h.post(page+"/due", "actor=ann", "reason=agreed", "due_at=2030-01-31T12:00:00Z"), http.StatusOK, "The task is due at 2030-01-31 12:00:00 UTC.", "set by <bdi>ann</bdi>")
	h.shows(h.post(page+"/due", "actor=ann", "reason=agreed", "due_at=2030-01-30T12:00:00Z", "step=ship"), http.StatusOK, "Step ship is due at 2030-01-30 12:00:00 UTC.")
	h.shows(h.get(page+"/due?step=ship"), http.StatusOK, `value="2030-01-30T12:00:00Z"`, "--step ship", "<option selected>ship")
	h.shows(h.post(page+"/due", "actor=ann", "reason=typo", "due_at=tomorrow"), http.StatusBadRequest, "must be a time such as 2026-01-31T12:00:00Z", `value="tomorrow"`)
	h.shows(h.post(page+"/due", "actor=ann", "reason=typo", "due_at=2020-01-31T12:00:00Z"), http.StatusBadRequest, "must be in the future")
	h.shows(h.post(page+"/due", "actor=ann", "reason=typo", "due_at=2030-01-30T12:00:00Z", "step=none"), http.StatusConflict, "none does not exist or has ended")
	h.shows(h.post(page+"/due", "actor=ann", "reason=typo"), http.StatusBadRequest, "due time is missing")
	h.Exec(`UPDATE tasker.deadlines SET due_at = now() - interval '1 hour', warn_at = now() - interval '2 hours', set_at = now() - interval '3 hours'`)
	h.shows(h.get("/ui/tasks?overdue=1"), http.StatusOK, page, "<strong>overdue</strong>, was due ")
	h.shows(h.get(page), http.StatusOK, "<strong>overdue</strong>, was due ")
	h.shows(h.post(page+"/due", "actor=ann", "reason=off", "due_at="), http.StatusOK, "The task has no due time any more.")
	h.shows(h.get(page+"/due"), http.StatusOK, "No due time.", "--none")
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "off"))
	h.shows(h.get(page+"/due"), http.StatusConflict, "its due time cannot be changed")
}

// An investigation says by when its task is due, in the queue and on its page.
func TestDueTimesOfInvestigations(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("parcel", step("pack"))
	h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "parcel", DueAfter: time.Hour})
	h.work(func(tasker.Assignment) error { return errors.New("no parcel") })
	queue, _, err := h.DB.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Limit: 1})
	h.Must(err)
	page := "/ui/investigations/" + queue[0].EntryUUID.String()
	h.shows(h.get("/ui/?view=entries"), http.StatusOK, `<span class="hint">due <time `)
	h.shows(h.get(page), http.StatusOK, `<span class="chip long idle">task due <time `)
	h.Exec(`UPDATE tasker.deadlines SET due_at = now() - interval '1 hour', warn_at = now() - interval '2 hours', set_at = now() - interval '3 hours'`)
	h.shows(h.get("/ui/?view=entries"), http.StatusOK, `<span class="hint"><strong>overdue</strong>, was due <time `)
	h.shows(h.get(page), http.StatusOK, `<span class="chip long bad">task <strong>overdue</strong>, was due <time `)
}
