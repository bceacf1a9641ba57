package web_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
)

// lived makes an investigation of a task one that was opened at an instant and, if it has ended,
// ended at another. Evidence never changes, so its guard is off for a moment.
func (h *harness) lived(task tasker.ID, from time.Time, to *time.Time, status tasker.ResolutionStatus) {
	h.Helper()
	e := h.Entry(task)
	h.Exec(`ALTER TABLE tasker.tasks_dlq DISABLE TRIGGER entry_evidence_never_changes`)
	h.Exec(`UPDATE tasker.tasks_dlq SET dlq_timestamp = $2::timestamptz, created_at = $2::timestamptz, priority_at = priority_at - dlq_timestamp + $2::timestamptz WHERE dlq_entry_uuid = $1`, e.UUID, from)
	h.Exec(`ALTER TABLE tasker.tasks_dlq ENABLE TRIGGER entry_evidence_never_changes`)
	h.Exec(`UPDATE tasker.case_members SET opened_at = $2 WHERE dlq_entry_uuid = $1`, e.UUID, from)
	if to != nil {
		h.Exec(`UPDATE tasker.tasks_dlq SET resolution_status = $2::tasker.dlq_resolution_status, resolved_at = $3, resolved_by = 'ann', resolution_notes = 'done'
			WHERE dlq_entry_uuid = $1`, e.UUID, status, *to)
		h.Exec(`INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status) VALUES ($1, 'resolved', 'ann', 'pending', $2)`, e.UUID, status)
	}
}

func TestEmptyDashboard(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	r := h.get("/ui/dashboard")
	h.sees(r, "No investigation yet", `aria-label="In the last hour, 0 opened, 0 ended, 0 verified"`, `aria-label="Open in the last hour, 0 at the end of `, "No sink configured", `<div class="big">0</div>open`, `<div class="big">–</div>`, "data-live")
	h.lacks(r, "No live worker", "Limited to", "cases</a>", "Duration of cases")
	for over, want := range map[string]int{"hour": 60, "day": 24, "month": 30} {
		r := h.get("/ui/dashboard?over=" + over)
		h.sees(r, `<a href="/ui/dashboard?over=`+over+`" aria-current="page">`)
		if n := strings.Count(r.text, "UTC</td>"); n != 2*want {
			t.Errorf("the charts of the last %s have %d columns, want %d", over, n, 2*want)
		}
	}
	h.sees(h.get("/ui/dashboard?over=day"), `aria-label="In the last 24 hours, 0 opened, 0 ended, 0 verified"`, "Duration of cases")
	h.sees(h.get("/ui/dashboard?over=month"), `aria-label="In the last 30 days, 0 opened, 0 ended, 0 verified"`)
	h.refused(h.get("/ui/dashboard?over=year"), http.StatusBadRequest, "one of hour, day, month")
}

// What was repaired leaves the open ones, and its times are those of its case.
func TestTheDashboardOfAnIncident(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.declined(3)
	of := h.caseOf("order")
	_, err := h.Cases.Update(t.Context(), of, tasker.CaseUpdate{Owner: new("ann"), Actor: "ann"})
	h.Must(err)
	e := h.Entry(tasks[0])
	h.operateStep(tasks[0], *e.StepUUID, tasker.ActionRequest{Action: tasker.ResolveManually, Actor: "ann", Reason: "done by hand"})
	h.update(e.UUID, tasker.EntryUpdate{Status: new(tasker.EntryManuallyResolved), Notes: new("done"), ResolvedBy: new("ann"), Actor: "ann"})
	r := h.get("/ui/dashboard")
	h.sees(r, `aria-label="In the last hour, 3 opened, 1 ended, 1 verified"`, `, 2 at the end of `+time.Now().UTC().Format("2006-01-02 15:"))
	r = h.get("/ui/dashboard?over=day")
	for _, phase := range tasker.Phases() {
		h.sees(r, "<strong>"+string(phase)+"</strong> <span class=\"hint\">")
	}
	if n := strings.Count(r.text, `<td data-label="Cases" class="number">1</td>`); n != len(tasker.Phases()) {
		t.Errorf("%d phases have the case", n)
	}
}

func TestTheDashboard(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.sinks("log", "webhook")
	tasks := h.declined(5)
	hour := time.Now().UTC().Truncate(time.Hour).Add(-3 * time.Hour)
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -10).Add(13 * time.Hour)
	after := func(at time.Time, minutes int) *time.Time { return new(at.Add(time.Duration(minutes) * time.Minute)) }
	h.lived(tasks[0], hour, nil, "")
	h.lived(tasks[1], hour.Add(59*time.Minute), after(hour, 89), tasker.EntryManuallyResolved)
	h.lived(tasks[2], day, after(day, 90), tasker.EntryPermanentlyFailed)
	h.lived(tasks[3], day.AddDate(0, 0, -50), after(day.AddDate(0, 0, -50), 60), tasker.EntryCancelled) // too old for the columns
	manual := h.create("order", `{}`)
	_, err := h.DLQ.Open(t.Context(), manual, tasker.NewEntry{Actor: "ann", Reason: "look"})
	h.Must(err)
	for _, sink := range []string{"log", "webhook"} {
		_, err := h.DB.TakeEvents(t.Context(), sink, 100)
		h.Must(err)
	}
	h.Exec(`UPDATE tasker.emission_sinks SET failing_since = now(), last_error = 'refused' WHERE sink = 'webhook'`)
	h.Template("parcel", served("pack", "wrap"))
	h.create("parcel", `{}`)

	r := h.get("/ui/dashboard")
	h.sees(r, `<div class="big">3</div>open · <a href="/ui/">cases</a>`, `<div class="big"><time datetime="`+hour.Format(time.RFC3339)+`"`,
		`<div class="big">3</div>ended`, `<div class="big">1 h 0 min</div>average time to end`, // 30, 90 and 60 minutes
		`<a href="/ui/?reason=max_retries_exceeded">max retries exceeded</a>`, `<a href="/ui/?reason=manual_dlq">manual dlq</a>`,
		`<td data-label="Open" class="number">2</td>`, `<td data-label="Manually resolved" class="number">1</td>`, `<td data-label="Permanently failed" class="number">1</td>`,
		`<td data-label="Cancelled" class="number">1</td>`, `<td data-label="All" class="number">5</td>`, `<td data-label="Average time">1 h 0 min</td>`,
		"No live worker for 1 queue:", `shop/wrap</a> (1 step)`,
		`<a href="/ui/emissions?sink=log">log</a> <span class="chip good">up</span>`, `<a href="/ui/emissions?sink=webhook">webhook</a> <span class="chip bad">failing</span>`,
		"9 events pending")
	h.sees(h.get("/ui/dashboard?over=day"), `aria-label="In the last 24 hours, 4 opened, 1 ended, 0 verified"`,
		"<title>"+hour.Format("2006-01-02 15:04")+" UTC: 2 opened</title>", "<title>"+hour.Add(time.Hour).Format("2006-01-02 15:04")+" UTC: 1 ended</title>")
	h.sees(h.get("/ui/dashboard?over=month"), `aria-label="In the last 30 days, 5 opened, 2 ended, 0 verified"`,
		"<title>"+day.Format("2006-01-02")+" 00:00 UTC: 1 opened</title>", "<title>"+day.Format("2006-01-02")+" 00:00 UTC: 1 ended</title>")
	h.sees(h.get("/ui/?reason=manual_dlq"), "1 investigation")
}

// The dashboard has the cases that cost most, as their list has them, of the namespaces of the caller.
func TestTheDashboardByCause(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	for i := range 12 {
		name := "order" + string(rune('a'+i))
		h.Template(name, step("charge"))
		h.fail(name, "charge", "the secret is out", 1+i%2)
	}
	h.FindCases()
	operator, viewer, other := h.signedIn("one", "operator@shop"), h.signedIn("viewer", "viewer@shop"), h.signedIn("other", "operator@bank")
	list, _, _, err := h.DB.CasePage(t.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 12}})
	h.Must(err)
	r := operator.get("/ui/dashboard")
	operator.sees(r, "By cause", `the 10 most costly of <a href="/ui/">12 cases</a>`, "the secret is out")
	rest := r.text
	for i, c := range list {
		_, after, found := strings.Cut(rest, `<a href="`+h.caseURL(c.ID)+`">`)
		if found != (i < 10) {
			t.Errorf("case %d of 12: shown in its order: %v", i+1, found)
		}
		if found {
			rest = after
		}
	}
	viewer.sees(viewer.get("/ui/dashboard"), h.caseURL(list[0].ID))
	viewer.lacks(viewer.get("/ui/dashboard"), "the secret is out")
	other.lacks(other.get("/ui/dashboard"), "By cause", "shop/order")
}

// Text in charts can be read in a narrow window, and open numbers stay open while the page keeps
// itself up to date.
func TestDashboardUpdatesKeepOpenNumbers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.declined(3)
	tab := h.open("/ui/dashboard?over=day")
	tab.Click("section[aria-labelledby=counts] summary")
	tab.Size(390, 844)
	tab.Until(`[...document.querySelectorAll("svg.plot text")].every((e) => e.getBoundingClientRect().height >= 9)`)
	tab.Eval(`window.was = Number(document.querySelector(".card .big").textContent)`)
	h.fail("order", "charge", "declined", 1)
	tab.Until(`Number(document.querySelector(".card .big").textContent) === window.was + 1`)
	tab.Until(`document.querySelector("section[aria-labelledby=counts] details").open`)
}
