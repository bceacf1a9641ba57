package web_test

import (
	"encoding/json"
	"html"
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/engine"
)

// A schedule is listed and shown, paused, resumed and triggered on its page.
func TestASchedule(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.shows(h.get("/ui/schedules"), http.StatusOK, "No schedules")
	s, err := h.Engine.CreateSchedule(t.Context(), tasker.ScheduleSpec{
		Namespace: "shop", Name: "nightly", Template: "order", Context: json.RawMessage(`{"region":"<eu>"}`),
		ScheduleRule: tasker.ScheduleRule{Cron: "30 2 * * *", Zone: "Europe/Berlin", Except: []string{"sat"}},
	}, engine.ScheduleChange{Actor: "ann", Reason: "the books"})
	h.Must(err)
	page := "/ui/schedules/" + s.UUID.String()
	h.shows(h.get("/ui/schedules"), http.StatusOK, `href="`+page+`"`, "shop/nightly", "30 2 * * * Europe/Berlin", "active")
	h.shows(h.get("/ui/schedules?state=paused"), http.StatusOK, "No schedule is paused")
	h.shows(h.get("/ui/schedules?after=x"), http.StatusBadRequest, "must be a UUID")
	h.shows(h.get(page), http.StatusOK, "Next firing times", "No firings yet", ", newest version", "sat", "the books", "Trigger now…", "Pause…", "region")

	h.shows(h.get(page+"/pause"), http.StatusOK, "creates no tasks until it is resumed", "schedule pause "+s.UUID.String())
	h.shows(h.post(page+"/pause", "actor=bo", "for=soon", "reason=audit"), http.StatusBadRequest, "must be a duration")
	h.shows(h.post(page+"/pause", "actor=bo", "reason="), http.StatusBadRequest, "The reason is missing")
	h.shows(h.post(page+"/pause", "actor=bo", "for=8h", "reason=audit"), http.StatusOK, "The schedule is paused.", "Paused by <bdi>bo</bdi>", "Resume…")
	h.shows(h.get(page+"/pause"), http.StatusConflict, "is already paused")
	h.shows(h.get("/ui/schedules?state=paused"), http.StatusOK, "shop/nightly", "paused")
	h.shows(h.post(page+"/resume", "actor=bo", "reason=done"), http.StatusOK, "The schedule is active.")
	h.shows(h.get(page+"/resume"), http.StatusConflict, "is not paused")

	h.shows(h.get(page+"/trigger"), http.StatusOK, `name="key" value="`)
	for range 2 { // the same form, sent again
		h.shows(h.post(page+"/trigger", "actor=bo", "reason=late file", "key=k1"), http.StatusOK, "A task was created.", "late file", "started (manual)")
	}
	if n := h.Count(`SELECT count(*) FROM tasker.tasks`); n != 1 {
		t.Errorf("a form that is sent twice makes %d tasks", n)
	}
	var task string
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT task_uuid::text FROM tasker.schedule_firings`).Scan(&task))
	h.shows(h.get("/ui/tasks/"+task), http.StatusOK, `<a href="`+page+`">schedule:nightly</a>`)

	h.shows(h.get(page+"/backfill"), http.StatusOK, "schedule backfill "+s.UUID.String(), "--dry-run")
	h.shows(h.post(page+"/backfill", "actor=bo", "reason=r", "from=2026-01-01T00:00:00Z"), http.StatusBadRequest, "The times are missing")
	h.shows(h.post(page+"/backfill", "actor=bo", "reason=r", "from=monday", "to=2026-01-03T12:00:00Z"), http.StatusBadRequest, "Invalid time")
	h.shows(h.post(page+"/backfill", "actor=bo", "reason=r", "from=2026-01-01T00:00:00Z", "to=2025-01-03T12:00:00Z"), http.StatusBadRequest, "must not be before from")
	h.shows(h.post(page+"/backfill", "actor=bo", "reason=r", "from=2026-01-01T00:00:00Z", "to=2026-01-03T12:00:00Z"), http.StatusOK,
		"Dry run", "2026-01-01 01:30:00 UTC", ">created<", "none: <bdi>except sat</bdi>")
	h.shows(h.post(page+"/backfill", "actor=bo", "reason=r", "from=2026-01-01T00:00:00Z", "to=2026-01-03T12:00:00Z", "do=fill"), http.StatusOK, "2 tasks created.", "started (backfill)")

	h.shows(h.get("/ui/schedules"), http.StatusOK, `href="/ui/new-schedule"`)
	h.shows(h.get("/ui/new-schedule"), http.StatusOK, "schedule add", `name="cron"`)
	fields := []string{"actor=bo", "namespace=shop", "name=hourly", "template=order", "cron=0 * * * *", "context={\"a\": 1}"}
	h.shows(h.post("/ui/new-schedule", append(fields, "cron=61 * * * *")...), http.StatusBadRequest, `value="61 * * * *"`, "cron")
	h.shows(h.post("/ui/new-schedule", append(fields, "every=soon", "cron=")...), http.StatusBadRequest, "must be a duration")
	h.shows(h.post("/ui/new-schedule", fields...), http.StatusOK, "Schedule hourly was added.", "Next firing times", "shop/hourly")
	h.shows(h.post("/ui/new-schedule", fields...), http.StatusConflict, "already has a schedule hourly")
	h.shows(h.post("/ui/new-schedule", append(fields, "name=often", "cron=", "every=90m")...), http.StatusOK, "every 1h30m0s")
	h.shows(h.post("/ui/new-schedule", append(fields, "name=chain", "cron=", "after_end=10m", "jitter=5m")...), http.StatusOK, "10m0s after the previous task ends")
	h.shows(h.post("/ui/new-schedule", append(fields, "name=office", "cron=0 9 1 * mon", "day_match=all", "except=sat, 2026-12-24..2027-01-01", "jitter=5m", "catch_up=all", "catch_up_max=3")...),
		http.StatusOK, "Schedule office was added.")
	var office string
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT concat_ws(' ', day_match, except_days, jitter_s, catch_up, catch_up_max) FROM tasker.schedules WHERE name = 'office'`).Scan(&office))
	if office != "all {sat,2026-12-24..2027-01-01} 300 all 3" {
		t.Errorf("the schedule has %s", office)
	}

	h.Exec(`UPDATE tasker.task_templates SET retired_at = now(), retired_by = 'ann', retired_reason = 'old'`)
	h.shows(h.post(page+"/trigger", "actor=bo", "reason=again"), http.StatusBadRequest, "accepts new tasks", ">again</textarea>")
	h.Exec(`DELETE FROM tasker.schedules WHERE name <> 'nightly'`)
	h.Exec(`UPDATE tasker.schedules SET next_at = date_trunc('second', now()), fire_at = now(), overlap = 'allow', except_days = '{}'`)
	h.tick()
	h.shows(h.get("/ui/schedules"), http.StatusOK, "last task not created")
	h.shows(h.get(page), http.StatusOK, "refused")
	h.shows(h.get("/ui/schedules/"+tasker.NewID().String()), http.StatusNotFound, "not found")
	h.Must(h.Engine.DeleteSchedule(t.Context(), s.UUID, engine.ScheduleChange{Actor: "ann"}))
	h.shows(h.get(page), http.StatusOK, "deleted")
	h.shows(h.get(page+"/trigger"), http.StatusConflict, "was deleted")
}

// What is wrong with a new schedule is said beside the field that it is about, by the rules of the API, and what was
// typed stays.
func TestScheduleFormReportsInvalidInput(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("validate"))
	for _, tt := range []struct{ field, typed, problem string }{
		{"name", "name=", "Is missing"},
		{"cron", "cron=61 * * * *", "must be *, or a value from 0 to 59"},
		{"cron", "day_match=any", "remove day_match"},
		{"zone", "zone=Mars", "Invalid time zone"},
		{"every", "every=soon", "must be a duration such as 90s or 6h"},
		{"after_end", "after_end=-1m", "must be a duration such as 90s or 6h"},
		{"except", "except=sat someday", "must be a date"},
		{"jitter", "jitter=2h", "Must be a whole number of seconds, at most 3600"},
		{"overlap", "overlap=never", "Must be skip, queue, cancel or allow"},
		{"catch_up", "catch_up=some", "Must be none, last or all"},
		{"catch_up_max", "catch_up=all", "Must be from 1 to 1000 if catch_up is all"},
		{"catch_up_max", "catch_up_max=many", `"many" must be a number from 1 to 1000`},
		{"context", "context={", "Must be valid JSON"},
		{"namespace", "namespace=", "Is missing"},
	} {
		r := h.post("/ui/new-schedule", "actor=bo", "namespace=shop", "name=hourly", "template=order", "cron=0 * * * *", tt.typed)
		_, beside, found := strings.Cut(r.text, `<p class="problem" id="`+tt.field+`-problem">`)
		beside, _, _ = strings.Cut(beside, "</p>")
		if r.status != http.StatusBadRequest || !found || !strings.Contains(html.UnescapeString(beside), tt.problem) {
			t.Errorf("%s is answered with %d, and beside %s there is %q, want %q", tt.typed, r.status, tt.field, beside, tt.problem)
		}
		if _, typed, _ := strings.Cut(tt.typed, "="); typed != "" && !strings.Contains(html.UnescapeString(r.text), typed) {
			t.Errorf("%s is lost", tt.typed)
		}
	}
	r := h.post("/ui/new-schedule", "actor=bo", "namespace=shop", "name=hourly", "template=order", "after_end=10m", "except=sat,sun", "jitter=1m", "catch_up=all")
	for _, want := range []string{"--after-end 10m", "--except sat,sun", "--jitter 1m", "--catch-up all", `"after_end_seconds":600`, "Overlap and catch_up cannot be used with after_end_seconds"} {
		if text := html.UnescapeString(r.text); r.status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%d, without %s", r.status, want)
		}
	}
}

// Who names a namespace that is not there for them loses nothing of what they typed.
func TestAScheduleOfANamespaceThatIsNotThere(t *testing.T) {
	t.Parallel()
	var a *auth.Authenticator
	h := newHarness(t, askingWith(&a))
	dev := h.signedIn("dev", "developer@bank")
	h.shows(dev.post("/ui/new-schedule", "namespace=shop", "name=mine", "template=order", "cron=0 * * * *"), http.StatusForbidden, "schedules:write in namespace shop", `value="mine"`)
}
