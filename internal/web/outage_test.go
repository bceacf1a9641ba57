package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/web"
)

// A page of a server that is gone says so where it is read, and that it is back.
func TestPageShowsALostConnection(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tab := h.open("/ui/")
	tab.Until(`document.getElementById("pause").textContent === "Live" && document.getElementById("lost").hidden`)
	tab.Eval(`window.realFetch = window.fetch; window.fetch = () => Promise.reject(new TypeError("refused")); document.dispatchEvent(new Event("visibilitychange"))`)
	tab.Until(`!document.getElementById("lost").hidden && document.getElementById("pause").textContent === "Not connected"`)
	tab.Sees("Not connected since")
	tab.Sees("Reconnecting")
	tab.Accessible()
	tab.Eval(`window.fetch = window.realFetch; document.dispatchEvent(new Event("visibilitychange"))`)
	tab.Until(`document.getElementById("lost").hidden && document.getElementById("pause").textContent === "Live"`)
}

// A database that does not answer in time is told as the API tells it: try again.
func TestAPageOfADatabaseThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *web.Options) { o.Timeout = 300 * time.Millisecond })
	tx, err := h.Admin().Begin(t.Context())
	h.Must(err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), `LOCK TABLE tasker.tasks_dlq IN ACCESS EXCLUSIVE MODE`)
	h.Must(err)
	r := h.get("/ui/")
	if r.status != http.StatusServiceUnavailable || !strings.Contains(r.text, "UNAVAILABLE") || strings.Contains(r.text, "INTERNAL") || r.header.Get("Retry-After") == "" {
		t.Errorf("%d, Retry-After %q: %s", r.status, r.header.Get("Retry-After"), r.text)
	}
}

// Counts are of everything that fits the filter, not of one page.
func TestCountsAreOfAllPages(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.Template("refund", step("pay"))
	h.fail("order", "charge", "declined", 3)
	h.fail("refund", "pay", "declined", 2)
	h.sees(h.get("/ui/"), "5 investigations in 2 cases", " · 5 in the last 5 min · oldest ")
	h.sees(h.get("/ui/?limit=1"), "5 investigations in 2 cases", "this page has 1–1")
	h.sees(h.get("/ui/?limit=1&offset=1"), "5 investigations in 2 cases", "this page has 2–2")
	entries, _, err := h.DB.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Name: "order", Limit: 10})
	h.Must(err)
	h.sees(h.get("/ui/investigations/"+entries[0].EntryUUID.String()), "2 other investigations</a> of the same failure are open")
	// The oldest is found wherever it stands in the queue.
	oldest := time.Now().Add(-100 * time.Hour).UTC().Truncate(time.Second)
	h.lived(entries[2].TaskUUID, oldest, nil, "")
	h.sees(h.get("/ui/dashboard"), fmt.Sprintf(`<div class="big"><time datetime="%s"`, oldest.Format(time.RFC3339)))
}

// Without a database every page and form says that the server failed, and nothing of its inside.
func TestPagesWithoutADatabase(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	st.sinks("log")
	task, emission := pageOf(st.task), "/ui/emissions/"+st.firstEvent().String()
	pages := []string{"/ui/", "/ui/tasks", "/ui/audit", "/ui/dashboard", "/ui/emissions", emission, st.casePath("order"), st.page(), task}
	seen := "seen=" + st.seen()
	st.token()
	st.DB.Close()
	fails := func(r reply) {
		t.Helper()
		if r.status < 500 {
			t.Errorf("%s is answered with %d", r.url, r.status)
		}
		st.sees(r, `role="alert"`)
		st.lacks(r, "pool", "postgres", "tasks_dlq", "audit_events", "v_dlq_dashboard", "read task")
	}
	for _, path := range pages {
		fails(st.get(path))
	}
	for _, path := range []string{
		st.page() + "/update", st.page() + "/own", st.action("reset"), st.action("complete"), task + "/cancel", task + "/investigate", emission + "/re-emit",
	} {
		fails(st.get(path))
		fails(st.post(path, "actor=ann", "reason=x", "notes=x", "result=1", "sinks=log", seen))
	}
}
