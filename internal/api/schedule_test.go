package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/enginetest"
)

// nightly is a schedule of template order.
func nightly(name string) apiv1.CreateSchedule {
	return apiv1.CreateSchedule{By: "ann", Reason: "nightly run", ScheduleSpec: apiv1.ScheduleSpec{
		Namespace: enginetest.Namespace, Name: name, Template: "order", Cron: "30 2 * * *", Zone: "Europe/Berlin", Except: []string{"sat", "sun"},
		Context: json.RawMessage(`{"region":"eu"}`), NominalKey: "at",
	}}
}

// A schedule is created, found, changed, paused, resumed, triggered, made up for and deleted over
// the API.
func TestSchedules(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t)
	e.Template("order", enginetest.Step("charge"))
	h := serve(t, e)
	first := want[apiv1.Schedule](h, http.StatusCreated, "POST", "/v1/schedules", nightly("b"))
	if first.State != "active" || first.Overlap != "skip" || first.CatchUp != "last" || first.StartWithinSeconds != 300 || first.NextAt == nil || first.CreatedBy != "ann" || first.Revision != 1 {
		t.Errorf("%+v", first)
	}
	h.wantError(http.StatusConflict, "CONFLICT", "already has a schedule b", "POST", "/v1/schedules", nightly("b"))
	second := want[apiv1.Schedule](h, http.StatusCreated, "POST", "/v1/schedules", nightly("a"))

	listed := func(query, names string) apiv1.SchedulePage {
		t.Helper()
		l := want[apiv1.ScheduleList](h, http.StatusOK, "GET", "/v1/schedules?"+query, nil)
		got := []string{}
		for _, s := range l.Schedules {
			got = append(got, s.Name)
		}
		if fmt.Sprint(got) != names {
			t.Errorf("%q lists %v, want %s", query, got, names)
		}
		return l.Pagination
	}
	listed("", "[a b]")
	listed("namespace=attic", "[]")
	listed("name=b", "[b]")
	page := listed("limit=1", "[a]")
	if !page.HasMore || page.NextAfter == nil {
		t.Fatalf("%+v", page)
	}
	if page = listed("limit=1&after="+*page.NextAfter, "[b]"); page.HasMore || page.NextAfter != nil {
		t.Errorf("%+v", page)
	}

	path := "/v1/schedules/" + first.ScheduleUUID
	d := want[apiv1.ScheduleDetail](h, http.StatusOK, "GET", path+"?next=7", nil)
	berlin, err := time.LoadLocation("Europe/Berlin")
	h.Must(err)
	for _, at := range d.Next {
		if local := at.In(berlin); local.Hour() != 2 && local.Hour() != 3 || local.Weekday() == time.Saturday || local.Weekday() == time.Sunday {
			t.Errorf("an instant to come is %s", local)
		}
	}
	if len(d.Next) != 7 || len(d.History) != 1 || len(d.Firings) != 0 || string(d.Context) != `{"region":"eu"}` {
		t.Errorf("%+v", d)
	}

	update := apiv1.UpdateSchedule{ScheduleSpec: d.ScheduleSpec, Revision: 1, By: "bo"}
	update.Cron, update.Zone, update.Except, update.EverySeconds, update.StartAt = "", "", nil, 3600, new(time.Now().Add(-5*time.Hour))
	changed := want[apiv1.Schedule](h, http.StatusOK, "PUT", path, update)
	if changed.Revision != 2 || changed.EverySeconds != 3600 || changed.Cron != "" || time.Until(*changed.NextAt) > time.Hour {
		t.Errorf("%+v", changed)
	}
	h.wantError(http.StatusConflict, "CONFLICT", "has revision 2, not 1", "PUT", path, update)

	paused := want[apiv1.Schedule](h, http.StatusOK, "POST", path+"/pause", apiv1.PauseSchedule{By: "ann", Reason: "audit"})
	if paused.State != "paused" || *paused.PausedBy != "ann" || *paused.PausedReason != "audit" {
		t.Errorf("%+v", paused)
	}
	listed("paused=true", "[b]")
	if resumed := want[apiv1.Schedule](h, http.StatusOK, "POST", path+"/resume", apiv1.ChangeSchedule{By: "ann"}); resumed.State != "active" || resumed.PausedAt != nil {
		t.Errorf("%+v", resumed)
	}
	h.wantError(http.StatusConflict, "CONFLICT", "is not paused", "POST", path+"/resume", apiv1.ChangeSchedule{})

	made := want[apiv1.Firing](h, http.StatusCreated, "POST", path+"/trigger", apiv1.ChangeSchedule{By: "ann", Reason: "late file"})
	if made.Kind != "manual" || made.TaskUUID == nil || *made.Reason != "late file" || made.Actor != "ann" {
		t.Errorf("%+v", made)
	}
	fill := apiv1.BackfillSchedule{From: time.Now().Add(-3*time.Hour - 30*time.Minute), To: time.Now().Add(-time.Hour), DryRun: true, By: "ann"}
	if b := want[apiv1.Backfill](h, http.StatusOK, "POST", path+"/backfill", fill); !b.DryRun || b.Tasks < 2 || b.Instants[0].TaskUUID != nil {
		t.Errorf("%+v", b)
	}
	fill.DryRun = false
	b := want[apiv1.Backfill](h, http.StatusOK, "POST", path+"/backfill", fill)
	if b.Tasks < 2 || b.Instants[0].TaskUUID == nil || !b.Instants[0].Starts {
		t.Errorf("%+v", b)
	}
	l := want[apiv1.FiringList](h, http.StatusOK, "GET", path+"/firings?limit=1", nil)
	if len(l.Firings) != 1 || l.Firings[0].Kind != "manual" || *l.Firings[0].TaskState != "steps_in_process" || l.Pagination.NextBefore == nil {
		t.Fatalf("%+v", l)
	}
	next := fmt.Sprintf("%s/firings?before=%s&before_kind=%s", path, l.Pagination.NextBefore.Format(time.RFC3339Nano), *l.Pagination.NextKind)
	if l = want[apiv1.FiringList](h, http.StatusOK, "GET", next, nil); len(l.Firings) != b.Tasks || l.Firings[0].Kind != "backfill" || l.Pagination.HasMore {
		t.Errorf("%+v", l)
	}
	if l = want[apiv1.FiringList](h, http.StatusOK, "GET", path+"/firings?outcome=missed", nil); len(l.Firings) != 0 {
		t.Errorf("%+v", l)
	}

	if gone := want[apiv1.Schedule](h, http.StatusOK, "DELETE", path+"?reason=old&by=ann", nil); gone.State != "deleted" || gone.FireAt != nil {
		t.Errorf("%+v", gone)
	}
	listed("", "[a]")
	h.wantError(http.StatusNotFound, "NOT_FOUND", "was deleted", "DELETE", path, nil)
	if d = want[apiv1.ScheduleDetail](h, http.StatusOK, "GET", path, nil); d.State != "deleted" || len(d.Firings) == 0 || d.History[0].Event != "deleted" || *d.History[0].Reason != "old" {
		t.Errorf("%+v", d)
	}
	_ = second
}

// What is wrong with a request about a schedule is said, and changes nothing.
func TestSchedulesRefuse(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t)
	e.Template("order", enginetest.Step("charge"))
	h := serve(t, e)
	s := want[apiv1.Schedule](h, http.StatusCreated, "POST", "/v1/schedules", nightly("a"))
	path := "/v1/schedules/" + s.ScheduleUUID
	other := func(change func(*apiv1.CreateSchedule)) apiv1.CreateSchedule {
		c := nightly("other")
		change(&c)
		return c
	}
	unknown := "/v1/schedules/0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f"
	for _, tt := range []struct {
		status       int
		method, path string
		body         any
		says         string
	}{
		{400, "POST", "/v1/schedules", other(func(c *apiv1.CreateSchedule) { c.Namespace = "" }), "namespace"},
		{400, "POST", "/v1/schedules", other(func(c *apiv1.CreateSchedule) { c.Template = "none" }), "none"},
		{400, "POST", "/v1/schedules", other(func(c *apiv1.CreateSchedule) { c.Cron = "61 * * * *" }), "minute"},
		{400, "POST", "/v1/schedules", other(func(c *apiv1.CreateSchedule) { c.EverySeconds = 5 }), "set exactly one of"},
		{400, "POST", "/v1/schedules", other(func(c *apiv1.CreateSchedule) { c.Zone = "Berlin" }), "zone"},
		{400, "POST", "/v1/schedules", other(func(c *apiv1.CreateSchedule) { c.Overlap = "wait" }), "overlap"},
		{400, "POST", "/v1/schedules", map[string]any{"namespace": "shop", "name": "x", "template": "order", "cron": "@daily", "interval": 5}, "interval"},
		{400, "PUT", path, apiv1.UpdateSchedule{ScheduleSpec: other(func(c *apiv1.CreateSchedule) { c.Cron = "" }).ScheduleSpec}, "set exactly one of"},
		{400, "POST", path + "/pause", apiv1.PauseSchedule{Reason: "r", Until: new(time.Now().Add(-time.Hour))}, "future"},
		{400, "POST", path + "/backfill", apiv1.BackfillSchedule{To: time.Now()}, "from"},
		{400, "GET", "/v1/schedules/x", nil, "schedule_uuid"},
		{400, "GET", "/v1/schedules?after=x", nil, "after"},
		{400, "GET", path + "/firings?outcome=lost", nil, "outcome"},
		{400, "GET", path + "?next=101", nil, "next"},
		{404, "GET", unknown, nil, "not found"},
		{404, "GET", unknown + "/firings", nil, "not found"},
		{404, "POST", unknown + "/trigger", apiv1.ChangeSchedule{}, "not found"},
		{404, "PUT", unknown, apiv1.UpdateSchedule{ScheduleSpec: nightly("x").ScheduleSpec}, "not found"},
	} {
		code := map[int]string{400: "INVALID", 404: "NOT_FOUND"}[tt.status]
		h.wantError(tt.status, code, tt.says, tt.method, tt.path, tt.body)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.schedules`); n != 1 {
		t.Errorf("%d schedules", n)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.schedule_history`); n != 1 {
		t.Errorf("%d changes", n)
	}
}
