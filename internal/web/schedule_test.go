package web_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
)

// A schedule is listed and shown, paused, resumed and triggered on its page.
func TestASchedule(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.shows(h.get("/ui/schedules"), http.StatusOK, "There are no schedules")
	s, err := h.Engine.CreateSchedule(t.Context(), tasker.ScheduleSpec{
		Namespace: "shop", Name: "nightly", Template: "order", Context: json.RawMessage(`{"region":"<eu>"}`),
		ScheduleRule: tasker.ScheduleRule{Cron: "30 2 * * *", Zone: "Europe/Berlin", Except: []string{"sat"}},
	}, engine.ScheduleChange{Actor: "ann", Reason: "the books"})
	h.Must(err)
	page := "/ui/schedules/" + s.UUID.String()
	h.shows(h.get("/ui/schedules"), http.StatusOK, `href="`+page+`"`, "shop/nightly", "30 2 * * * Europe/Berlin", "active")
	h.shows(h.get("/ui/schedules?state=paused"), http.StatusOK, "No schedule is paused")
	h.shows(h.get("/ui/schedules?after=x"), http.StatusBadRequest, "the id of a schedule")
	h.shows(h.get(page), http.StatusOK, "Next instants", "No instant has come yet", "the newest version", "sat", "the books", "Trigger now…", "Pause…", "region")

	h.shows(h.get(page+"/pause"), http.StatusOK, "makes no tasks by itself", "schedule pause "+s.UUID.String())
	h.shows(h.post(page+"/pause", "actor=bo", "for=soon", "reason=audit"), http.StatusBadRequest, "must be a duration")
	h.shows(h.post(page+"/pause", "actor=bo", "reason="), http.StatusBadRequest, "Reason is missing")
	h.shows(h.post(page+"/pause", "actor=bo", "for=8h", "reason=audit"), http.StatusOK, "The schedule is paused.", "Paused by <bdi>bo</bdi>", "Resume…")
	h.shows(h.get(page+"/pause"), http.StatusConflict, "is paused already")
	h.shows(h.get("/ui/schedules?state=paused"), http.StatusOK, "shop/nightly", "paused")
	h.shows(h.post(page+"/resume", "actor=bo", "reason=done"), http.StatusOK, "The schedule makes tasks again.")
	h.shows(h.get(page+"/resume"), http.StatusConflict, "is not paused")

	h.shows(h.post(page+"/trigger", "actor=bo", "reason=late file"), http.StatusOK, "A task was made.", "late file", "started (manual)")
	var task string
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT task_uuid::text FROM tasker.schedule_firings`).Scan(&task))
	h.shows(h.get("/ui/tasks/"+task), http.StatusOK, `<a href="`+page+`">schedule:nightly</a>`)

	h.Exec(`UPDATE tasker.task_templates SET retired_at = now(), retired_by = 'ann', retired_reason = 'old'`)
	h.shows(h.post(page+"/trigger", "actor=bo", "reason=again"), http.StatusBadRequest, "takes new tasks", ">again</textarea>")
	h.Exec(`UPDATE tasker.schedules SET next_at = date_trunc('second', now()), fire_at = now(), overlap = 'allow', except_days = '{}'`)
	_, err = h.Engine.Tick(t.Context())
	h.Must(err)
	h.shows(h.get("/ui/schedules"), http.StatusOK, "its last task could not be made")
	h.shows(h.get(page), http.StatusOK, "refused")
	h.shows(h.get("/ui/schedules/"+tasker.NewID().String()), http.StatusNotFound, "No schedule")
	h.Must(h.Engine.DeleteSchedule(t.Context(), s.UUID, engine.ScheduleChange{Actor: "ann"}))
	h.shows(h.get(page), http.StatusOK, "deleted")
	h.shows(h.get(page+"/trigger"), http.StatusConflict, "was deleted")
}
